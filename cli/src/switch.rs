//! `fastlane switch`: moves a port of a running application to another driver.

use std::io::{self, Write};
use std::process::ExitCode;

use fastlane::config::{self, raw::Driver};
use fastlane::describe::PortFacts;
use fastlane::session::SwitchReport;
use serde_json::{Map, Value, json};

use crate::Error;

/// Moves a port of a running application to another driver while packets flow.
///
/// Tables, sessions and held packets stay. The new device is opened beside the present one, which
/// is closed once everything that it has received was read. If the new one cannot be opened, or its
/// peer does not connect within 3 s, nothing changes. A PCI device that goes from Linux to DPDK, or
/// back, leaves the port without a device for seconds. The configuration file stays as it is: the
/// next start has the driver written there.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the application, or path of its session socket (any argument with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
    /// Name of the port
    port: String,
    /// New driver: its name, or the JSON object that `driver` would have in the configuration
    driver: String,
    /// Settings of the driver. Default of `interface`: the present one
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  fastlane switch macswap wire af-packet
  fastlane switch macswap wire af-xdp mode=native-copy
  fastlane switch macswap wire memif socket=/run/peer.sock role=client
  fastlane switch macswap wire '{\"af-packet\": {\"interface\": \"eth1\"}}'";

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = crate::top::attach(&arguments.application)?;
    let port = client.application.ports.iter().find(|port| port.name == arguments.port);
    let driver = driver(arguments, port).map_err(Error::Failed)?;
    let report = client.switch(&arguments.port, driver);
    let report = report.map_err(|error| Error::Failed(error.to_string()))?;
    let mut stdout = io::stdout().lock();
    if arguments.json {
        writeln!(stdout, "{}", json!(report))?;
        return Ok(ExitCode::SUCCESS);
    }
    let SwitchReport { before, now, lost, silent_seconds, seconds } = report;
    writeln!(stdout, "port `{}`: {before} -> {now}", arguments.port)?;
    writeln!(
        stdout,
        "{lost} packets lost, {silent_seconds:.3} s without traffic, done in {seconds:.3} s"
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the settings of the new driver.
fn driver(arguments: &Arguments, port: Option<&PortFacts>) -> Result<Driver, String> {
    let value = match arguments.driver.starts_with('{') {
        true if !arguments.settings.is_empty() => {
            return Err("write the settings into the JSON object of the driver".to_owned());
        }
        true => serde_json::from_str(&arguments.driver)
            .map_err(|error| format!("{}: {error}", arguments.driver))?,
        false => named(&arguments.driver, &arguments.settings, port)?,
    };
    config::driver(value).map_err(|error| error.to_string())
}

/// Returns the object of a driver with these settings. The interface is that of the port unless
/// they name one.
fn named(driver: &str, settings: &[String], port: Option<&PortFacts>) -> Result<Value, String> {
    let mut object = Map::new();
    if matches!(driver, "af-xdp" | "af-packet")
        && let Some(interface) = port.and_then(|port| port.interface.as_ref())
    {
        object.insert("interface".to_owned(), json!(interface));
    }
    for setting in settings {
        let pair = setting.split_once('=');
        let (key, value) =
            pair.ok_or_else(|| format!("`{setting}` is no setting; write KEY=VALUE"))?;
        // What is no JSON is a string, as for `--set`.
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        object.insert(key.to_owned(), value);
    }
    Ok(json!({ driver: object }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(words: &[&str]) -> Result<String, String> {
        let line = ["switch", "macswap", "wire"].iter().chain(words);
        let Line { arguments } = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        let facts = PortFacts {
            name: "wire".to_owned(),
            driver: "af-xdp".to_owned(),
            mode: String::new(),
            interface: Some("eth1".to_owned()),
            queues: 1,
            kernel: None,
            switches: 0,
        };
        driver(&arguments, Some(&facts)).map(|driver| json!(driver).to_string())
    }

    #[test]
    fn a_driver_is_a_word_with_settings_or_an_object() {
        let packet = parsed(&["af-packet"]).unwrap();
        assert!(packet.starts_with(r#"{"af-packet":{"interface":"eth1","#), "{packet}");
        assert_eq!(parsed(&[r#"{"af-packet": {"interface": "eth1"}}"#]), Ok(packet));
        let memif = parsed(&["memif", "socket=@peer", "role=client", "ring=512"]).unwrap();
        assert!(memif.contains(r#""socket":"@peer""#) && memif.contains("512"), "{memif}");
        let other = parsed(&["af-xdp", "interface=eth2", "mode=generic-copy"]).unwrap();
        assert!(other.contains(r#""interface":"eth2""#), "{other}");
    }

    #[test]
    fn mistakes_are_named() {
        for (words, reason) in [
            (&["af-xpd"][..], "af-xpd"),
            (&["af-packet", "ring"], "KEY=VALUE"),
            (&["af-packet", "rings=64"], "rings"),
            (&["{}", "ring=64"], "into the JSON object"),
            (&["{"], "EOF"),
        ] {
            let error = parsed(words).unwrap_err();
            assert!(error.contains(reason), "{words:?}: {error}");
        }
    }
}
