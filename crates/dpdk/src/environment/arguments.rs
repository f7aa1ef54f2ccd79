//! The arguments of EAL.

use super::EnvironmentSettings;
use super::pages;
use crate::Error;

/// Memory of DPDK besides the frames, for its drivers' rings and tables, in MiB.
const OWN: usize = 48;

/// Returns true if one of these options, each with its dashes, is among the arguments.
pub(super) fn contains(arguments: &[String], options: &[&str]) -> bool {
    arguments.iter().any(|argument| {
        options.iter().any(|option| match argument.strip_prefix(option) {
            Some("") => true,
            Some(rest) if option.starts_with("--") => rest.starts_with('='),
            Some(_) => true, // -l2 is -l 2
            None => false,
        })
    })
}

/// Returns all arguments except those for the CPUs, with the program's name first, and a warning
/// for the operator.
pub(super) fn build(
    settings: &EnvironmentSettings,
) -> Result<(Vec<String>, Option<String>), Error> {
    let own = &settings.arguments;
    let mut arguments = vec!["fastlane".to_owned()];
    let mut add = |options: &[&str], argument: String| {
        if !contains(own, options) {
            arguments.push(argument);
        }
    };
    let prefix = format!("--file-prefix=fastlane-{}", std::process::id());
    add(&["--file-prefix"], prefix);
    add(&["--telemetry", "--no-telemetry"], "--no-telemetry".to_owned());
    add(&["--log-level"], "--log-level=error".to_owned());
    let wanted = settings.memory + OWN;
    let page_options = ["--no-huge", "--in-memory", "--huge-dir", "--legacy-mem"];
    let (pages, warning) = match contains(own, &page_options) {
        true => (Vec::new(), None),
        false => pages::choose(settings.huge_pages, wanted, pages::free())?,
    };
    let in_system_pages = pages.iter().any(|argument| argument == "--no-huge");
    for argument in pages {
        add(&[], argument);
    }
    if in_system_pages || contains(own, &["--no-huge"]) {
        add(&["-m", "--socket-mem"], format!("-m{wanted}"));
    }
    if settings.pci.is_empty() {
        add(&["--no-pci", "-a", "--allow", "-b", "--block"], "--no-pci".to_owned());
    }
    for address in &settings.pci {
        add(&[], format!("--allow={address}"));
    }
    arguments.extend(own.iter().cloned());
    Ok((arguments, warning))
}

/// Refuses arguments of a privileged program: whoever may start it could load code by `-d`.
pub(super) fn check(arguments: &[String], is_privileged: bool) -> Result<(), Error> {
    if is_privileged && !arguments.is_empty() {
        return Err(Error::PrivilegedArguments { arguments: arguments.join(" ") });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::HugePages;
    use super::*;

    #[test]
    fn a_privileged_program_takes_no_arguments() {
        let evil = ["-d".to_owned(), "/tmp/evil.so".to_owned()];
        assert!(check(&evil, false).is_ok() && check(&[], true).is_ok());
        let error = check(&evil, true).unwrap_err().to_string();
        assert!(error.contains("`-d /tmp/evil.so`") && error.contains("AmbientCap"), "{error}");
    }

    fn settings() -> EnvironmentSettings {
        EnvironmentSettings { huge_pages: HugePages::None, memory: 16, ..Default::default() }
    }

    #[test]
    fn without_huge_pages_it_gets_the_memory_that_it_needs() {
        let (arguments, warning) = build(&settings()).unwrap();
        let expected = ["--no-huge", "--no-shconf", "-m64", "--no-pci", "--no-telemetry"];
        for argument in expected {
            assert!(arguments.iter().any(|one| one == argument), "{argument} in {arguments:?}");
        }
        assert_eq!(warning, None, "it was asked for");
    }

    #[test]
    fn what_is_given_wins_and_devices_are_the_only_ones_touched() {
        let pci = vec!["0000:04:02.0".to_owned()];
        let own = ["-m", "512", "--file-prefix=mine"].map(str::to_owned).to_vec();
        let (arguments, _) =
            build(&EnvironmentSettings { pci, arguments: own, ..settings() }).unwrap();
        let with = |start: &str| arguments.iter().filter(|a| a.starts_with(start)).count();
        assert_eq!((with("-m"), with("--file-prefix"), with("--no-pci")), (1, 1, 0));
        assert!(arguments.contains(&"--allow=0000:04:02.0".to_owned()));
    }

    #[test]
    fn options_are_known_in_all_their_spellings() {
        let list = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(contains(&list("-l 2"), &["-l"]) && contains(&list("-l2"), &["-l"]));
        assert!(
            contains(&list("--lcores=1"), &["--lcores"])
                && contains(&list("--lcores 1"), &["--lcores"])
        );
        assert!(!contains(&list("--log-level=8"), &["-l", "--log"]));
    }
}
