//! Virtual functions for users without any privilege, as in a container.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fastlane_tests::{
    Application, Echo, Guest, Kernel, Lab, NOBODY, Nic, Process, assert_unprivileged, binary,
    load_modules, unprivileged,
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
        let group = Path::new("/dev/vfio").join(nic.iommu_group());
        chown(group, Some(NOBODY), Some(NOBODY)).expect("the group's file");
        nic
    };
    macs.iter().enumerate().map(of).collect()
}

/// Returns the command that runs macswap on a function as [`NOBODY`], and its session. `limit` is
/// the most memory in octets that it may lock, or `unlimited`.
fn macswap(lab: &Lab, nic: &Nic, limit: &str) -> (Command, PathBuf) {
    let driver: Value = json!({"dpdk": {"device": nic.address()}});
    let (path, session) = Application::configure(lab, Application::steered(&driver));
    let inner = unprivileged(lab, &lab.left, "macswap");
    // The plugin is looked for beside the program, which was copied. One that runs must not change.
    let (plugin, copy) = ("libfastlane_dpdk.so", lab.file("libfastlane_dpdk.so"));
    if !copy.exists() {
        std::fs::copy(binary("macswap").with_file_name(plugin), &copy).expect("a copy");
    }
    let mut command = Command::new("prlimit");
    command.arg(format!("--memlock={limit}")).arg("--").arg(inner.get_program());
    command.args(inner.get_args()).arg(path);
    (command, session)
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
