//! Report in Markdown.

use std::fmt::{self, Write};

use super::comparison::ENOUGH;
use super::plots::Plot;
use super::results::{ComparisonResult, LoadResult, Results, SizeResult};
use super::trial::Limit;
use crate::statistics::{median, quantile};

/// Returns the report, with links to the plots in the same folder.
pub(super) fn report(results: &Results, plots: &[Plot]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, results, plots);
    text
}

fn write(text: &mut String, results: &Results, plots: &[Plot]) -> fmt::Result {
    let Results { machine, description, load_average: [before, after], .. } = results;
    let command = description.device.command.join(" ");
    let title = description.title.as_ref().unwrap_or(&command);
    writeln!(text, "# {title}\n")?;
    writeln!(
        text,
        "{} to {}, by Fastlane {}, on {} x {}, Linux {}; load average {before:.1} to {after:.1}.\n",
        results.began,
        results.ended,
        results.fastlane,
        machine.processors,
        machine.processor,
        machine.linux,
    )?;
    writeln!(text, "Device: `{command}`")?;
    if results.quick {
        writeln!(text, "\n**Quick: few, short trials. For orientation, not for figures.**")?;
    }
    if *before > machine.processors as f64 {
        writeln!(
            text,
            "\n**More wanted to run than there are processors: pauses of milliseconds are in \
             these figures.**"
        )?;
    }
    throughput(text, results)?;
    loads(text, results)?;
    back_to_back(text, results)?;
    comparisons(text, results)?;
    for plot in plots {
        writeln!(text, "\n![{}]({})", plot.title, plot.file)?;
    }
    Ok(())
}

fn throughput(text: &mut String, results: &Results) -> fmt::Result {
    let rows = || results.sizes.iter().filter_map(|size| Some((size, size.throughput.as_ref()?)));
    if rows().next().is_none() {
        return Ok(());
    }
    let settings = &results.description.throughput;
    writeln!(
        text,
        "\n## Throughput\n\nThe highest rate at which at most {} of a million frames are lost \
         (RFC 2544 clause 26.1): median of {} searches (lowest to highest), trials of {} ms, to \
         {} %, most of {} attempts. Sizes and Gb/s include the check sequence of four bytes.\n\n\
         | Frames | Packets/s | Gb/s | Limited by |\n|---|---|---|---|",
        settings.acceptable_loss_ppm,
        settings.repeats,
        settings.trial_ms,
        settings.resolution_percent,
        settings.attempts,
    )?;
    for (size, found) in rows() {
        let (limit, note) = (found.limited_by, note(found.limited_by));
        match (found.packets_per_second, found.bits_per_second) {
            (Some(rate), Some(bits)) => writeln!(
                text,
                "| {} | {:.0} ({:.0} to {:.0}) | {:.3} | {limit}{note} |",
                size.frame_size,
                rate.median,
                rate.low,
                rate.high,
                bits / 1e9,
            ),
            _ => writeln!(
                text,
                "| {} | frames are lost at {} packets/s too | - | {limit} |",
                size.frame_size, settings.lowest_packets_per_second,
            ),
        }?;
    }
    Ok(())
}

/// Returns a note on the meaning of a limit for the figure.
fn note(limit: Limit) -> &'static str {
    match limit {
        Limit::Device | Limit::Link => "",
        Limit::Generator | Limit::Highest => ": the device may be faster",
    }
}

fn loads(text: &mut String, results: &Results) -> fmt::Result {
    if results.sizes.iter().all(|size| size.loads.is_empty()) {
        return Ok(());
    }
    writeln!(
        text,
        "\n## Latency and CPU\n\nRound trips in us at parts of the throughput (RFC 2544 clause \
         26.2), and CPU time of the device's process. Work that Linux does for it elsewhere is not \
         in it.\n\n\
         | Frames | Load | Packets/s | Lost | min | p50 | p90 | p99 | p99.9 | max | ns/packet | \
         Cores |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    if let Some(idle) = results.idle_cores {
        writeln!(text, "| - | 0 % | 0 | - | - | - | - | - | - | - | - | {idle:.3} |")?;
    }
    results
        .sizes
        .iter()
        .try_for_each(|size| size.loads.iter().try_for_each(|load| at_load(text, size, load)))
}

fn at_load(text: &mut String, size: &SizeResult, load: &LoadResult) -> fmt::Result {
    let latencies = load.trial.latency.map_or_else(
        || " - |".repeat(6),
        |it| {
            [it.minimum_ns, it.p50_ns, it.p90_ns, it.p99_ns, it.p99_9_ns, it.maximum_ns]
                .map(|value| format!(" {:.1} |", value as f64 / 1e3))
                .concat()
        },
    );
    writeln!(
        text,
        "| {} | {} % | {:.0} | {} |{latencies} {:.1} | {:.3} |",
        size.frame_size,
        load.load_percent,
        load.trial.offered_packets_per_second,
        load.trial.lost_packets,
        load.device_ns_per_packet,
        load.device_cores,
    )
}

fn back_to_back(text: &mut String, results: &Results) -> fmt::Result {
    let rows = || results.sizes.iter().filter_map(|size| Some((size, size.back_to_back.as_ref()?)));
    if rows().next().is_none() {
        return Ok(());
    }
    writeln!(
        text,
        "\n## Back to back\n\nThe longest burst of which nothing is lost, sent as fast as the \
         generator can: average of {} searches (RFC 2544 clause 26.4, RFC 9004).\n\n\
         | Frames | Packets | Shortest to longest | At packets/s |\n|---|---|---|---|",
        results.description.back_to_back.repeats
    )?;
    for (size, result) in rows() {
        let (least, most) =
            (result.longest_packets.iter().min(), result.longest_packets.iter().max());
        writeln!(
            text,
            "| {} | {:.0}{} | {} to {} | {:.0} |",
            size.frame_size,
            result.average_packets,
            if result.reached_longest { " or more" } else { "" },
            least.unwrap_or(&0),
            most.unwrap_or(&0),
            result.packets_per_second,
        )?;
    }
    Ok(())
}

fn comparisons(text: &mut String, results: &Results) -> fmt::Result {
    if results.comparisons.is_empty() {
        return Ok(());
    }
    let settings = &results.description.comparison;
    writeln!(
        text,
        "\n## Comparison\n\nCPU time per packet in ns, median (quartiles), with {} frames on their \
         way: {} pairs of alternating slices of {} ms. The ratio is the median of the pairs with \
         its bootstrap 95 % interval; one wider than 4 % resolves nothing. The control is the \
         device against itself.\n\n\
         | | Frames | Device | Rival | Ratio | Goal |\n|---|---|---|---|---|---|",
        settings.outstanding_packets, settings.pairs, settings.slice_ms,
    )?;
    results.comparisons.iter().try_for_each(|comparison| compared(text, comparison))?;
    if let Some(comparison) = results.comparisons.iter().find(|it| !it.control) {
        let ComparisonResult { device, rival, .. } = comparison;
        writeln!(text, "\nDevice: `{device}`; rival: `{rival}`")?;
    }
    if settings.pairs < ENOUGH {
        writeln!(text, "\nFewer than {ENOUGH} pairs: that resolves nothing.")?;
    }
    Ok(())
}

fn compared(text: &mut String, comparison: &ComparisonResult) -> fmt::Result {
    let cost = |values: &[f64]| {
        let digits = if median(values) < 100.0 { 2 } else { 0 };
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|at| quantile(values, at));
        format!("{middle:.digits$} ({low:.digits$} to {high:.digits$})")
    };
    let goal = match (comparison.bound, comparison.verdict) {
        (Some(bound), Some(verdict)) => format!("at most {bound}: **{verdict}**"),
        _ if comparison.ratio.is_resolved(1.0) => "-".to_owned(),
        _ => "not resolved".to_owned(),
    };
    let ratio = comparison.ratio;
    writeln!(
        text,
        "| {} | {} | {} | {} | {:.3} [{:.3}, {:.3}] | {goal} |",
        if comparison.control { "Control" } else { "Comparison" },
        comparison.frame_size,
        cost(&comparison.device_ns_per_packet),
        cost(&comparison.rival_ns_per_packet),
        ratio.value,
        ratio.low,
        ratio.high,
    )
}
