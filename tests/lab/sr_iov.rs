//! Virtual functions for users without any privilege, as in a container.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fastlane_tests::{
    Agent, Application, Echo, Guest, Kernel, Lab, NOBODY, Nic, Process, assert_unprivileged,
    binary, eventually, load_modules, unprivileged,
};
use serde_json::{Value, json};

use crate::support::lab;

/// MAC addresses of the functions, which differ from that of their port.
const MACS: [&str; 2] = ["02:00:00:00:77:21", "02:00:00:00:77:22"];

fn guest() -> Guest {
    Guest::new(Kernel::V6_12).nics("igb").huge_pages(200)
}

/// Creates virtual functions of the first device for DPDK, with the MAC addresses `macs`. Each is
/// the property of [`NOBODY`].
fn virtual_functions(macs: &[&str]) -> Vec<Nic> {
    let nics = virtual_functions_of_root(macs);
    for nic in &nics {
        chown(node(nic), Some(NOBODY), Some(NOBODY)).expect("the group's file");
    }
    nics
}

/// Returns the device node of the IOMMU group of a device.
fn node(nic: &Nic) -> PathBuf {
    Path::new("/dev/vfio").join(nic.iommu_group())
}

/// Creates virtual functions of the first device for DPDK, with the MAC addresses `macs`.
fn virtual_functions_of_root(macs: &[&str]) -> Vec<Nic> {
    load_modules(&["igb", "vfio_iommu_type1", "vfio-pci"]);
    let port = Nic::at(Nic::FIRST);
    let interface = port.interface();
    let run = |words: &[&str]| {
        let output = Command::new("ip").args(words).output().expect("ip");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["link", "set", &interface, "up"]);
    port.write("sriov_drivers_autoprobe", "0");
    port.write("sriov_numvfs", &macs.len().to_string());
    let of = |(number, mac): (usize, &&str)| {
        run(&["link", "set", &interface, "vf", &number.to_string(), "mac", mac]);
        let link = std::fs::read_link(port.file(&format!("virtfn{number}"))).expect("a function");
        let nic = Nic::at(&link.file_name().expect("an address").to_string_lossy());
        nic.bind("vfio-pci");
        nic
    };
    macs.iter().enumerate().map(of).collect()
}

/// Returns the command that runs macswap on a function as [`NOBODY`], and its session. `limit` is
/// the most memory in octets that it may lock, or `unlimited`.
fn macswap(lab: &Lab, nic: &Nic, limit: &str) -> (Command, PathBuf) {
    let (path, session) = Application::configure(lab, steered(nic));
    let mut inner = unprivileged(lab, &lab.left, "macswap");
    inner.arg(path);
    (limited(lab, &inner, limit), session)
}

/// Returns the configuration of macswap on a function.
fn steered(nic: &Nic) -> Value {
    Application::steered(&json!({"dpdk": {"device": nic.address()}}))
}

/// Returns a command that runs `inner`, which uses DPDK, and may lock `limit` octets of memory.
fn limited(lab: &Lab, inner: &Command, limit: &str) -> Command {
    // The plugin is looked for beside the program, which was copied. One that runs must not change.
    let (plugin, copy) = ("libfastlane_dpdk.so", lab.file("libfastlane_dpdk.so"));
    if !copy.exists() {
        std::fs::copy(binary("macswap").with_file_name(plugin), &copy).expect("a copy");
    }
    let mut command = Command::new("prlimit");
    command.arg(format!("--memlock={limit}")).arg("--").arg(inner.get_program());
    command.args(inner.get_args());
    command
}

/// Returns true if [`NOBODY`] may open a file.
fn is_open_to_nobody(path: &Path) -> bool {
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--bounding-set=-all"]);
    command.arg("test").arg("-w").arg(path);
    command.status().expect("setpriv").success()
}

#[test]
fn virtual_functions_serve_users_without_any_capability() {
    guest().run(|| {
        let nics = virtual_functions(&MACS);
        let (lab, _) = lab();
        let running: Vec<Application> = nics
            .iter()
            .map(|nic| {
                let (command, session) = macswap(&lab, nic, "unlimited");
                let macswap = Application::run(command, session);
                assert_unprivileged(&macswap.process);
                macswap
            })
            .collect();
        for mac in MACS {
            let mut echo = Echo::towards(&lab.right, "wire0", mac);
            let back = (0..200).filter(|_| echo.try_once(Duration::from_secs(10))).count();
            assert_eq!(back, 200, "frames to {mac}");
        }
        for macswap in running {
            macswap.stop();
        }
    });
}

/// Returns the command that runs macswap on a function as [`NOBODY`], with the agent, and its
/// session.
fn client(agent: &Agent, lab: &Lab, nic: &Nic, privileges: &str) -> (Command, PathBuf) {
    let mut configuration = steered(nic);
    configuration["privileges"] = json!(privileges);
    let (inner, session) = agent.client(lab, "macswap", configuration);
    (limited(lab, &inner, "unlimited"), session)
}

/// Returns the error of a macswap that must not start.
#[track_caller]
fn refusal(agent: &Agent, lab: &Lab, nic: &Nic, privileges: &str) -> String {
    let ended = Process::start(client(agent, lab, nic, privileges).0).wait();
    assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
    ended.stderr
}

/// Asserts that 200 frames to the first function come back.
#[track_caller]
fn assert_echo(lab: &Lab) {
    let mut echo = Echo::towards(&lab.right, "wire0", MACS[0]);
    let back = (0..200).filter(|_| echo.try_once(Duration::from_secs(10))).count();
    assert_eq!(back, 200);
}

#[test]
fn the_agent_gives_virtual_functions_to_a_user_without_any_capability() {
    guest().run(|| {
        let nics = virtual_functions_of_root(&MACS);
        let (lab, port) = lab();
        let nodes: Vec<PathBuf> = nics.iter().map(node).collect();
        let pci = [nics[0].address(), Nic::FIRST];
        let pools = json!({"vf": {"pci": pci, "steer": [], "users": [NOBODY]}});
        let mut agent = Agent::start(&lab, &pools).expect("the guest allows everything");
        let is_closed = || !is_open_to_nobody(&nodes[0]);
        for privileges in ["agent", "auto"] {
            assert!(is_closed(), "before {privileges}");
            let (command, session) = client(&agent, &lab, &nics[0], privileges);
            let macswap = Application::run(command, session);
            assert_unprivileged(&macswap.process);
            assert_echo(&lab);
            assert!(!is_closed() && !is_open_to_nobody(&nodes[1]));
            // One application has it.
            let refused = refusal(&agent, &lab, &nics[0], "agent");
            assert!(refused.contains("has IOMMU group"), "{refused}");
            macswap.stop();
            eventually("the node is closed", is_closed);
        }
        // A device that the pool does not have, and one that Linux has.
        let refused = refusal(&agent, &lab, &nics[1], "agent");
        assert!(refused.contains("this client may not use PCI device"), "{refused}");
        let refused = refusal(&agent, &lab, &port, "agent");
        assert!(refused.contains("not bound to vfio-pci: the driver `igb` has it"), "{refused}");

        // The application goes on without the agent, and the next one closes the node.
        let (command, session) = client(&agent, &lab, &nics[0], "auto");
        let macswap = Application::run(command, session);
        agent.kill();
        assert_echo(&lab);
        let refused = refusal(&agent, &lab, &nics[1], "auto");
        let named = nodes[1].display().to_string();
        assert!(refused.contains(&named) && refused.contains("key `pci`"), "{refused}");
        agent.run(&lab);
        eventually("the node is closed", is_closed);
        assert_echo(&lab);
        macswap.stop();
    });
}

#[test]
fn a_device_that_shares_its_iommu_group_is_refused_by_name() {
    // Functions behind a bridge of conventional PCI cannot be told apart by an IOMMU.
    let guest = guest()
        .device("pcie-root-port,id=root9,chassis=9,slot=9")
        .device("pcie-pci-bridge,id=old,bus=root9")
        .device("e1000,bus=old,addr=1,romfile=")
        .device("e1000,bus=old,addr=2,romfile=");
    guest.run(|| {
        load_modules(&["e1000", "igb", "vfio_iommu_type1", "vfio-pci"]);
        let devices = std::fs::read_dir("/sys/bus/pci/drivers/e1000").expect("the driver");
        let names = devices.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut nics: Vec<Nic> =
            names.filter(|name| name.contains(':')).map(|name| Nic::at(&name)).collect();
        nics.sort_by_key(|nic| nic.address().to_owned());
        assert_eq!(nics.len(), 2, "{nics:?}");
        assert_eq!(nics[0].iommu_group(), nics[1].iommu_group());
        nics[0].bind("vfio-pci");
        let (lab, _) = lab();
        let refused = |pci: &[&str]| {
            let pools = json!({"old": {"pci": pci, "steer": [], "users": [NOBODY]}});
            let agent = Agent::start(&lab, &pools).expect("the guest allows everything");
            refusal(&agent, &lab, &nics[0], "agent")
        };
        let alone = refused(&[nics[0].address()]);
        let shares = format!("with `{}`, which is not in pool `old`", nics[1].address());
        assert!(alone.contains(&shares), "{alone}");
        let both = refused(&[nics[0].address(), nics[1].address()]);
        assert!(both.contains("which the driver `e1000` has"), "{both}");
    });
}

#[test]
fn a_small_limit_of_locked_memory_is_named_with_its_remedy() {
    guest().run(|| {
        let nics = virtual_functions(&MACS[..1]);
        let (lab, _) = lab();
        let (command, _) = macswap(&lab, &nics[0], "8388608");
        let ended = Process::start(command).wait();
        assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
        for words in [nics[0].address(), "locked memory", "LimitMEMLOCK=infinity"] {
            assert!(ended.stderr.contains(words), "no `{words}` in {}", ended.stderr);
        }
    });
}
