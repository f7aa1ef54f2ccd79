//! Prometheus collector of the counters: names, labels and help texts.

use std::fmt;
use std::path::Path;

use fastlane_table::counters::{Counters, LaneCounter, PortCounter};
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue,
};
use prometheus_client::metrics::MetricType;

use crate::describe::{Application, Description, PortFacts};
use crate::threads;

/// Label names and values of a sample.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Collector that reads the counters at each scrape.
#[derive(Debug)]
pub(super) struct Collector {
    description: Description,
    counters: Counters,
    /// Lane numbers as label values.
    lanes: Vec<String>,
}

impl Collector {
    pub(super) fn new(description: Description, counters: &Counters) -> Self {
        let lanes = (0..counters.lanes()).map(|lane| lane.to_string()).collect();
        Self { description, counters: counters.clone(), lanes }
    }
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let application = &self.description.get();
        let mut page = Page { encoder, collector: self, application };
        page.facts()?;
        page.lanes()?;
        page.lane_packets()?;
        page.lane_gauges()?;
        page.ports()
    }
}

/// Page that is being written.
struct Page<'e, 'a> {
    encoder: DescriptorEncoder<'e>,
    collector: &'a Collector,
    application: &'a Application,
}

impl<'a> Page<'_, 'a> {
    fn facts(&mut self) -> fmt::Result {
        let application = self.application;
        let build = vec![("name", &*application.name), ("version", &*application.version)];
        self.info("fastlane_build", "The application and its version.", vec![build])?;
        let any = || "any".to_owned();
        let cpus =
            application.lanes.iter().map(|lane| lane.cpu.map_or_else(any, |n| n.to_string()));
        let cpus: Vec<_> = cpus.collect();
        let lanes = self.collector.lanes.iter().zip(&application.lanes).zip(&cpus);
        let lanes = lanes.map(|((number, facts), cpu)| {
            vec![("lane", &**number), ("cpu", cpu), ("idle", &*facts.idle)]
        });
        self.info("fastlane_lane", "The lanes, their CPUs and idle policies.", lanes.collect())?;
        let ports = application.ports.iter().map(|facts| {
            let mut labels = port_labels(facts);
            labels.push(("interface", facts.interface.as_deref().unwrap_or_default()));
            labels.push(("kernel", facts.kernel.as_deref().unwrap_or_default()));
            labels
        });
        let help = "The ports, their interfaces and their ways into Linux.";
        self.info("fastlane_port", help, ports.collect())?;
        self.port_states()
    }

    /// Writes for each port if it is up, and the reason if not.
    fn port_states(&mut self) -> fmt::Result {
        let (application, counters) = (self.application, &self.collector.counters);
        let help = "1 while the port receives and sends; 0 while it cannot, by the reason.";
        let mut metric =
            self.encoder.encode_descriptor("fastlane_port_up", help, None, MetricType::Gauge)?;
        for (port, facts) in application.ports.iter().enumerate() {
            let reason = counters.down_reason(port);
            let mut labels = port_labels(facts);
            labels.push(("reason", reason.map_or("", |reason| reason.name())));
            let up = i64::from(reason.is_none());
            metric.encode_family(&labels)?.encode_gauge(&up)?;
        }
        Ok(())
    }

    fn lanes(&mut self) -> fmt::Result {
        use LaneCounter::{BusyTurns, MessagesLost, MessagesReceived, MessagesSent, Sleeps, Turn};
        for (name, help, counter) in [
            ("fastlane_lane_turns", "Turns of the lane.", Turn),
            ("fastlane_lane_busy_turns", "Turns that found work.", BusyTurns),
            ("fastlane_lane_sleeps", "Times that the lane went to sleep.", Sleeps),
            ("fastlane_lane_messages_sent", "Messages sent to the slow path.", MessagesSent),
            (
                "fastlane_lane_messages_lost",
                "Messages to the slow path for which there was no room.",
                MessagesLost,
            ),
            (
                "fastlane_lane_messages_received",
                "Messages received from the slow path.",
                MessagesReceived,
            ),
        ] {
            self.count(name, help, counter)?;
        }
        let slept = |lane| {
            let nanoseconds = self.lane(lane, LaneCounter::SleptNanoseconds);
            Some(Number::Seconds(nanoseconds as f64 / 1e9))
        };
        let samples = self.each_lane(slept);
        self.counters("fastlane_lane_sleep_seconds", "Time that the lane slept.", samples)?;
        let used = |lane| {
            let thread = self.lane(lane, LaneCounter::Thread);
            threads::cpu_seconds(Path::new("/proc/self"), thread).map(Number::Seconds)
        };
        let samples = self.each_lane(used);
        self.counters("fastlane_lane_cpu_seconds", "CPU time of the lane's thread.", samples)?;
        let kinds =
            [("minor", LaneCounter::MinorPageFaults), ("major", LaneCounter::MajorPageFaults)];
        let help = "Page faults of the lane's thread since its first turn; major ones wait for a \
                    disk.";
        self.lane_family("fastlane_lane_page_faults", help, "kind", &kinds)?;
        let requests =
            [("new_packet", LaneCounter::NewRefused), ("timer", LaneCounter::TimersRefused)];
        let help = "Requests of the application that its lane refused.";
        self.lane_family("fastlane_lane_refused_requests", help, "request", &requests)
    }

    /// Writes the packet counters of the lanes.
    fn lane_packets(&mut self) -> fmt::Result {
        use LaneCounter::{DiscardedPackets, NewPackets, ParkedPackets, ResumedPackets};
        for (name, help, counter) in [
            ("fastlane_lane_new_packets", "Packets that the application made.", NewPackets),
            (
                "fastlane_lane_resumed_packets",
                "Packets that were held and shown to the application again.",
                ResumedPackets,
            ),
            (
                "fastlane_lane_discarded_packets",
                "Packets that were held and dropped because the application said so.",
                DiscardedPackets,
            ),
            (
                "fastlane_lane_parked_packets",
                "Packets that waited for their shard to move to another lane.",
                ParkedPackets,
            ),
        ] {
            self.count(name, help, counter)?;
        }
        let reasons = LaneCounter::ALL.into_iter().filter_map(|counter| {
            counter.name().strip_prefix("drop_").map(|reason| (reason, counter))
        });
        let reasons: Vec<_> = reasons.collect();
        let help = "Packets lost inside the lane against their sender's will, by the reason.";
        self.lane_family("fastlane_lane_dropped_packets", help, "reason", &reasons)
    }

    fn lane_gauges(&mut self) -> fmt::Result {
        use LaneCounter::{
            Asleep, BusiestShard, Ended, HeldPackets, MessagesRefused, PoolFrames, PoolFree,
        };
        for (name, help, counter) in [
            ("fastlane_lane_pool_frames", "Frames of the lane's pool.", PoolFrames),
            ("fastlane_lane_pool_free_frames", "Frames that nobody holds.", PoolFree),
            ("fastlane_lane_held_packets", "Packets in the hold area.", HeldPackets),
            ("fastlane_lane_asleep", "1 while the lane sleeps.", Asleep),
            ("fastlane_lane_ended", "1 once the lane has ended.", Ended),
            (
                "fastlane_lane_messages_refused",
                "1 once the slow path has written what is no message: none is read any more.",
                MessagesRefused,
            ),
        ] {
            self.gauges(name, help, |page, lane| page.lane(lane, counter))?;
        }
        let help = "The share of the busiest shard in the packets given to their lanes here.";
        let share = |page: &Self, lane| page.lane(lane, BusiestShard) as f64 / 1000.0;
        self.gauges("fastlane_lane_busiest_shard_ratio", help, share)
    }

    fn ports(&mut self) -> fmt::Result {
        use PortCounter::{
            DeviceNoFrames, PassedPackets, ReceivedBytes, ReceivedPackets, SentBytes, SentPackets,
        };
        for (name, help, counter) in [
            ("fastlane_port_received_packets", "Packets received.", ReceivedPackets),
            ("fastlane_port_received_bytes", "Bytes received, without the FCS.", ReceivedBytes),
            ("fastlane_port_sent_packets", "Packets handed to the port.", SentPackets),
            ("fastlane_port_sent_bytes", "Bytes handed to the port, without the FCS.", SentBytes),
            (
                "fastlane_port_passed_packets",
                "Packets received here and passed to the lane that owns their key.",
                PassedPackets,
            ),
            (
                "fastlane_port_device_no_frames",
                "Times that the device wanted a frame to receive into and there was none.",
                DeviceNoFrames,
            ),
        ] {
            let samples = self.each_port(counter, None);
            self.counters(name, help, samples)?;
        }
        let help = "Packets received, by the verdict of the application.";
        self.port_family("fastlane_port_verdict_packets", help, "verdict", "verdict_")?;
        let help = "Packets lost against their sender's will, by the reason.";
        self.port_family("fastlane_port_dropped_packets", help, "reason", "drop_")?;
        let to = self.each_port(PortCounter::ToKernelPackets, Some(("direction", "to")));
        let from = self.each_port(PortCounter::FromKernelPackets, Some(("direction", "from")));
        let help = "Packets given to Linux, and packets that Linux sent out through the port.";
        self.counters("fastlane_port_kernel_packets", help, [to, from].concat())?;
        let mut samples = vec![];
        for counter in PortCounter::ALL {
            let Some(result) = counter.name().strip_prefix("steer_") else { continue };
            for (port, facts) in self.application.ports.iter().enumerate() {
                let labels = [port_labels(facts), vec![("result", result)]].concat();
                let count = self.collector.counters.port_total(port, counter);
                samples.push((labels, Number::Count(count)));
            }
        }
        let help = "Frames that steering saw, by what became of them.";
        self.counters("fastlane_steer_packets", help, samples)?;
        let switches = self.application.ports.iter();
        let switches = switches.map(|it| (port_labels(it), Number::Count(it.switches))).collect();
        let help = "Times that the port was switched to another driver, which is in the labels.";
        self.counters("fastlane_port_switches", help, switches)
    }

    /// Writes counters of each lane, told apart by the value of a label.
    fn lane_family(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        members: &[(&'a str, LaneCounter)],
    ) -> fmt::Result {
        let samples = members.iter().flat_map(|(member, counter)| {
            self.lane_labels().map(|(lane, labels)| {
                let labels = [labels, vec![(label, *member)]].concat();
                (labels, Number::Count(self.lane(lane, *counter)))
            })
        });
        let samples = samples.collect();
        self.counters(name, help, samples)
    }

    /// Writes all counters whose names begin with `prefix`; the rest of the name becomes a label.
    fn port_family(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        prefix: &str,
    ) -> fmt::Result {
        let members = PortCounter::ALL.into_iter().filter_map(|counter| {
            counter.name().strip_prefix(prefix).map(|member| (counter, member))
        });
        let samples =
            members.flat_map(|(counter, member)| self.each_port(counter, Some((label, member))));
        let samples = samples.collect();
        self.counters(name, help, samples)
    }

    fn lane(&self, lane: usize, counter: LaneCounter) -> u64 {
        self.collector.counters.lane(lane).load(counter)
    }

    fn lane_labels(&self) -> impl Iterator<Item = (usize, Labels<'a>)> + use<'a> {
        let lanes = self.collector.lanes.iter().enumerate();
        lanes.map(|(lane, number)| (lane, vec![("lane", &**number)]))
    }

    fn each_lane(&self, read: impl Fn(usize) -> Option<Number>) -> Vec<Sample<'a>> {
        let samples = self.lane_labels().map(|(lane, labels)| Some((labels, read(lane)?)));
        samples.flatten().collect()
    }

    /// Returns a counter of each port in each lane. A non-zero count outside the lanes is added
    /// without the label `lane`.
    fn each_port(
        &self,
        counter: PortCounter,
        member: Option<(&'static str, &'static str)>,
    ) -> Vec<Sample<'a>> {
        let (application, counters) = (self.application, &self.collector.counters);
        let mut samples = vec![];
        for (port, facts) in application.ports.iter().enumerate() {
            let mut add = |lane: Labels<'a>, count| {
                let labels = [port_labels(facts), lane, member.into_iter().collect()].concat();
                samples.push((labels, Number::Count(count)));
            };
            for (lane, labels) in self.lane_labels() {
                add(labels, counters.port(lane, port).load(counter));
            }
            let outside = counters.shared_port(port).load(counter);
            if outside > 0 {
                add(vec![], outside);
            }
        }
        samples
    }

    fn info(&mut self, name: &str, help: &str, entries: Vec<Labels<'_>>) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Info)?;
        entries.iter().try_for_each(|labels| metric.encode_info(labels))
    }

    fn counters(&mut self, name: &str, help: &str, samples: Vec<Sample<'_>>) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        samples.iter().try_for_each(|(labels, number)| {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(number, None)
        })
    }

    /// Writes a counter of each lane.
    fn count(&mut self, name: &str, help: &str, counter: LaneCounter) -> fmt::Result {
        let samples = self.each_lane(|lane| Some(Number::Count(self.lane(lane, counter))));
        self.counters(name, help, samples)
    }

    /// Writes a gauge of each lane, whose value `read` returns.
    fn gauges<N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        read: impl Fn(&Self, usize) -> N,
    ) -> fmt::Result {
        let samples: Vec<_> = self.lane_labels().map(|(lane, it)| (it, read(self, lane))).collect();
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        samples
            .iter()
            .try_for_each(|(labels, value)| metric.encode_family(labels)?.encode_gauge(value))
    }
}

fn port_labels(facts: &PortFacts) -> Labels<'_> {
    vec![("port", &*facts.name), ("driver", &*facts.driver), ("mode", &*facts.mode)]
}

/// Labels and value of a sample.
type Sample<'a> = (Labels<'a>, Number);

/// Value of a counter.
#[derive(Clone, Copy, Debug)]
enum Number {
    Count(u64),
    Seconds(f64),
}

impl EncodeCounterValue for Number {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => EncodeCounterValue::encode(count, encoder),
            Self::Seconds(seconds) => EncodeCounterValue::encode(seconds, encoder),
        }
    }
}
