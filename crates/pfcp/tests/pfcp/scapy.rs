//! Interoperability with scapy: each side decodes the messages of the other.

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use fastlane_pfcp::ie::*;
use fastlane_pfcp::{Header, IeType, Message, MessageType};

use crate::samples;

/// Returns the folder with scapy, installing it in the build folder if it is missing. Returns a
/// reason if that fails.
fn scapy() -> &'static Result<PathBuf, String> {
    static SCAPY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    SCAPY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pfcp-scapy");
        if folder.join("scapy/contrib/pfcp.py").exists() {
            return Ok(folder);
        }
        let wanted = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/upf/requirements.txt");
        // Another test program may install it at the same time: the first to be done is taken.
        let aside = folder.with_extension(std::process::id().to_string());
        // Debian's python3 has no pip of its own, and python3-venv brings one.
        let environment = aside.with_extension("venv");
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        let mut pip = Command::new(environment.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]);
        pip.arg("--require-hashes").arg("-r").arg(wanted).arg("--target").arg(&aside);
        let installed = run(&mut pip);
        let _ = std::fs::remove_dir_all(&environment);
        installed?;
        if std::fs::rename(&aside, &folder).is_err() {
            let _ = std::fs::remove_dir_all(&aside);
        }
        Ok(folder)
    })
}

/// Runs a command.
///
/// # Errors
/// Returns what it has written if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("python3 cannot be started: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Runs the script and returns its output, or `None` if scapy cannot be installed.
fn ask(test: &str, verb: &str, input: &str) -> Option<String> {
    let folder = match scapy() {
        Ok(folder) => folder,
        Err(reason) => {
            fastlane_testing::skip(test, &format!("pip cannot install scapy: {reason}"));
            return None;
        }
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pfcp/scapy.py");
    // The script is called scapy too: its own folder is not looked in.
    let mut python = Command::new("python3");
    python.arg("-P").arg(script).arg(verb).env("PYTHONPATH", folder);
    python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn().expect("python3 can be started");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Elements of later releases than scapy's, and those of which it knows an older form.
const NEWER: [u16; 32] = [
    43, 89, 37, 38, 44, 63, 65, 66, 93, 103, 141, 161, 162, 163, 164, 177, 178, 180, 181, 182, 183,
    184, 186, 187, 232, 233, 250, 251, 256, 257, 259, 260,
];

#[test]
fn scapy_knows_our_elements() {
    let lines: String = samples::all()
        .iter()
        .map(|(name, octets)| {
            let octets: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            format!("{name} {octets}\n")
        })
        .collect();
    let Some(output) = ask("pfcp-scapy", "read", &lines) else { return };
    let mut same = 0;
    for (line, (name, _)) in output.lines().zip(samples::all()) {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(words[0], name);
        // Session set modification is of Release 17.
        if name.starts_with("session-set-modification") {
            continue;
        }
        for number in words[2].split(',').filter(|word| *word != "-") {
            let known = number.parse().is_ok_and(|n| NEWER.contains(&n) || n == 275 || n == 318);
            assert!(known, "{name}: scapy does not read element {number}");
        }
        same += usize::from(words[1] == "True");
    }
    assert_eq!(output.lines().count(), samples::all().len());
    assert!(same >= 15, "scapy builds only {same} messages to the same octets again");
}

#[test]
fn we_know_the_elements_of_scapy() {
    let Some(output) = ask("pfcp-scapy", "make", "") else { return };
    let made: Vec<(String, Vec<u8>)> = output
        .lines()
        .map(|line| {
            let (name, octets) = line.split_once(' ').unwrap();
            let pairs = octets.as_bytes().chunks(2);
            let octet = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            (name.to_owned(), pairs.map(octet).collect())
        })
        .collect();
    assert_eq!(made.len(), 4);
    let message = |name: &str| {
        let (_, octets) = made.iter().find(|(made, _)| made == name).unwrap();
        let (message, _) = Message::parse(octets).unwrap();
        assert_eq!(message.check(), Ok(()), "{name}");
        message
    };
    let heartbeat = message("heartbeat");
    assert_eq!(heartbeat.header, Header::node(MessageType::HEARTBEAT_REQUEST, 5));
    assert_eq!(heartbeat.group().need(), Ok(RecoveryTimeStamp(3_900_000_000)));
    let association = message("association").group();
    assert_eq!(association.need(), Ok(NodeId::V4(samples::V4)));
    assert_eq!(association.need(), Ok(CpFunctionFeatures::OVRL));
    assert_eq!(message("deletion").header.seid, Some(9));
    check_establishment(&message("establishment"));
}

fn check_establishment(message: &Message<'_>) {
    assert_eq!(message.header.priority, Some(3));
    let group = message.group();
    let seid = FSeid { seid: 0x0102_0304_0506_0708, v4: Some(samples::V4), v6: None };
    assert_eq!(group.need(), Ok(seid));
    let pdr = group.group(IeType::CREATE_PDR).unwrap();
    assert_eq!((pdr.need(), pdr.need()), (Ok(PdrId(1)), Ok(Precedence(100))));
    assert_eq!((pdr.need(), pdr.need(), pdr.need()), (Ok(FarId(7)), Ok(QerId(5)), Ok(UrrId(6))));
    let pdi = pdr.group(IeType::PDI).unwrap();
    assert_eq!(pdi.need(), Ok(SourceInterface::ACCESS));
    let choose = FTeid { choose_v4: true, choose_id: Some(3), ..FTeid::default() };
    assert_eq!(pdi.need(), Ok(choose));
    let user = Some(Ipv4Addr::new(10, 1, 2, 3));
    assert_eq!(pdi.need(), Ok(UeIpAddress { v4: user, ..UeIpAddress::default() }));
    let flow: SdfFilter<'_> = pdi.need().unwrap();
    assert_eq!(flow.flow_description, Some(&b"permit out ip from any to assigned"[..]));
    let far = group.group(IeType::CREATE_FAR).unwrap();
    // One octet, as Release 15 has it.
    assert_eq!(far.raw(IeType::APPLY_ACTION), Some(&[2][..]));
    assert_eq!(far.need(), Ok(ApplyAction::FORW));
    let parameters = far.group(IeType::FORWARDING_PARAMETERS).unwrap();
    let peer = Ipv4Addr::new(192, 0, 2, 9);
    assert_eq!(parameters.need(), Ok(OuterHeaderCreation::gtp_u_v4(0x0102_0304, peer)));
    let qer = group.group(IeType::CREATE_QER).unwrap();
    assert_eq!(qer.need(), Ok(GateStatus { uplink: Gate::Open, downlink: Gate::Closed }));
    assert_eq!(qer.need(), Ok(Mbr { uplink: 1000, downlink: 2000 }));
    let urr = group.group(IeType::CREATE_URR).unwrap();
    let triggers = ReportingTriggers::VOLTH | ReportingTriggers::VOLQU;
    assert_eq!(urr.need(), Ok(triggers));
    let quota = Volumes { total: Some(4000), ..Volumes::default() };
    assert_eq!(urr.need(), Ok(VolumeQuota(quota)));
}
