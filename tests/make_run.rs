//! The scripts of `make run` reach their summaries, with the programs of this build.
//!
//! Rates and losses are not judged here, since the build is not optimised and the machine is
//! shared. `make run` judges them by its exit status.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use fastlane_testing::skip;
use fastlane_tests::{NOBODY, Process, binary, repository};

/// Runs a script of `lab` for two seconds and returns all that it wrote.
fn run(script: &str, mechanism: &str) -> Option<String> {
    if !rustix::process::getuid().is_root() {
        skip("make_run", "needs root, for network namespaces");
        return None;
    }
    let programs = binary("upf");
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab").join(script))
        .arg(mechanism)
        .env("LAB_PROGRAMS", programs.parent().expect("the programs are in a folder"))
        .env("LAB_SECONDS", "2")
        .output()
        .expect("a script that can be executed");
    let [written, errors] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    Some(format!("{written}\n{errors}"))
}

#[test]
fn the_upf_reaches_its_summary() {
    let Some(text) = run("upf", "af-xdp") else { return };
    assert!(text.contains("UPF on af-xdp, veth, 5 users"), "{text}");
    assert!(
        text.contains("slow path   killed 1 times meanwhile; sessions after that: all"),
        "{text}"
    );
}

#[test]
fn macswap_reaches_its_summary() {
    let Some(text) = run("run", "af-packet") else { return };
    assert!(text.contains("macswap on af-packet"), "{text}");
}

/// Copies what an ordinary user needs to where everybody may read it.
fn copy_for_everybody(folder: &Path) {
    for place in ["", "lab", "programs", "programs/examples"] {
        let place = folder.join(place);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
    }
    for file in ["agent", "upf", "upf.json", "far.json", "summary"] {
        std::fs::copy(repository("lab").join(file), folder.join("lab").join(file)).unwrap();
    }
    for program in ["upf", "gnb", "smf", "fastlane", "all_kernel"] {
        let place = if program == "all_kernel" { "programs/examples" } else { "programs" };
        std::fs::copy(binary(program), folder.join(place).join(program)).unwrap();
    }
}

#[test]
fn an_ordinary_user_runs_the_upf_once_the_agent_runs() {
    let is_root = rustix::process::getuid().is_root();
    let user = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
    ];
    assert_eq!(user[2], NOBODY.to_string());
    let as_user = |words: &[&str]| {
        let mut command = Command::new(user[0]);
        command.args(&user[1..]).args(words);
        command
    };
    let namespace = ["unshare", "--user", "--map-root-user", "--net", "--mount", "true"];
    if !is_root || !as_user(&namespace).output().is_ok_and(|output| output.status.success()) {
        return skip("make_run", "no root, or no user namespaces for ordinary users");
    }
    let folder = tempfile::tempdir().unwrap();
    copy_for_everybody(folder.path());
    let script = |name: &str| folder.path().join("lab").join(name).display().to_string();
    let set = |command: &mut Command| {
        command.env("LAB_PROGRAMS", folder.path().join("programs")).env("LAB_SECONDS", "2");
        command.env("LAB_AGENT", folder.path().join("agent"));
    };
    let mut command = Command::new(script("agent"));
    set(command.arg(NOBODY.to_string()));
    let agent = Process::start(command);
    agent.wait_for("the agent listens");
    let mut command = as_user(&[&script("upf"), "agent"]);
    set(&mut command);
    let output = command.output().expect("setpriv");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("UPF on agent, veth, 5 users"), "{text}");
    assert!(text.contains("sessions after that: all"), "{text}");
    assert!(text.contains("50 MiB intact"), "{text}");
    agent.wait_for(&format!("of user {NOBODY} has `n6`"));
    let ended = agent.stop();
    assert!(!folder.path().join("agent").exists(), "{}", ended.stderr);
}
