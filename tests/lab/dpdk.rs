//! DPDK on emulated devices through vfio-pci, behind a virtual IOMMU. The peer is the kernel's
//! driver of the same model.

use std::time::Duration;

use fastlane_tests::{
    Application, Echo, Guest, Kernel, LEFT_MAC, Lab, Nic, eventually, load_modules,
};
use serde_json::{Value, json};

use crate::support::{carries, exchange, lab};

/// Returns a guest with two devices of a model, for DPDK.
fn guest(model: &str) -> Guest {
    Guest::new(Kernel::V6_12).nics(model).huge_pages(200)
}

/// Returns a lab, and the first device, which is vfio-pci's.
fn vfio_lab(module: &str) -> (Lab, Nic) {
    load_modules(&[module, "vfio_iommu_type1", "vfio-pci"]);
    let (lab, nic) = lab();
    nic.bind("vfio-pci");
    (lab, nic)
}

/// Returns the driver of a device.
fn on(nic: &Nic) -> Value {
    json!({"dpdk": {"device": nic.address()}})
}

/// Exchanges packets that two rules select. The device is asked for them first (rte_flow), and what
/// it refuses the lane matches.
fn packets_return(module: &str, refusal: &str) {
    let (lab, nic) = vfio_lab(module);
    let mode = carries(&lab, &on(&nic), 5000);
    assert!(mode.contains(&format!("steering by software (rte_flow: rule 1 ({refusal}")), "{mode}");
}

#[test]
fn packets_return_on_igb() {
    guest("igb").run(|| packets_return("igb", "Failed to create flow.): Invalid argument"));
}

#[test]
fn packets_return_on_e1000e() {
    guest("e1000e").run(|| packets_return("e1000e", "Function not implemented)"));
}

#[test]
fn packets_return_on_vmxnet3() {
    guest("vmxnet3").run(|| packets_return("vmxnet3", "Function not implemented)"));
}

#[test]
fn packets_return_on_virtio() {
    guest("virtio-net-pci,iommu_platform=on")
        .run(|| packets_return("virtio_net", "Function not implemented)"));
}

/// Linux itself is at the other end: a virtio device whose back end is vhost-net.
#[test]
fn packets_return_over_virtio_user_and_vhost_net() {
    Guest::new(Kernel::V6_12).huge_pages(200).run(|| {
        load_modules(&["vhost_net"]);
        let lab = Lab::new("lab-vhost", 1).expect("the guest allows everything");
        let device = format!(
            "net_virtio_user0,path=/dev/vhost-net,queues=1,queue_size=256,iface=other,\
             mac={LEFT_MAC}"
        );
        let driver = json!({"dpdk": {"vdev": device}});
        let macswap = Application::macswap(&lab, Application::steered(&driver));
        lab.left.run(&["ip", "link", "set", "other", "addrgenmode", "none", "up"]);
        let mut echo = Echo::new(&lab.left, "other");
        (0..200).for_each(|_| echo.once());
        macswap.stop();
    });
}

/// The kernel asks for the device back, as it does when a card is pulled: DPDK gives it up, the
/// process says so, and takes it again when it is back.
#[test]
fn a_device_that_is_removed_and_comes_back_carries_again() {
    guest("igb").seconds(3600).run(|| {
        let (lab, nic) = vfio_lab("igb");
        let mut configuration = Application::steered(&on(&nic));
        configuration["dpdk"] = json!({"eal-arguments": []});
        let macswap = Application::macswap(&lab, configuration);
        exchange(&lab, 500);
        let mut held = Vec::new();
        for _ in 0..removals() {
            nic.write("remove", "1");
            eventually("the device is gone", || !nic.file("vendor").exists());
            std::fs::write("/sys/bus/pci/rescan", "1").expect("the bus is scanned");
            eventually("the device is back", || nic.file("vendor").exists());
            nic.bind("vfio-pci");
            let mut echo = Echo::new(&lab.right, "wire0");
            eventually("it carries again", || echo.try_once(Duration::from_millis(200)));
            held.push(holds(&macswap));
        }
        exchange(&lab, 500);
        let [first, last] = [held[0], held[held.len() - 1]];
        eprintln!("{} removals; descriptors and resident KiB: {first:?}, {last:?}", held.len());
        // The process opens one for a moment now and then, so its least number counts.
        let least = held.iter().map(|held| held[0]).min();
        eventually("no descriptor is left", || Some(holds(&macswap)[0]) == least);
        // Memory that a removal leaves grows with each; the first ones fill the allocator's pools.
        let half = held[held.len() / 2];
        assert!(last[1] < half[1] + 512, "memory is left: {held:?}");
        macswap.stop();
    });
}

/// Returns the number of descriptors of a process, and its resident memory in KiB.
fn holds(application: &Application) -> [u64; 2] {
    let process = format!("/proc/{}", application.process.id());
    let descriptors = std::fs::read_dir(format!("{process}/fd")).expect("it runs").count();
    let status = std::fs::read_to_string(format!("{process}/status")).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
    [descriptors as u64, resident.expect("a number")]
}

/// Returns how often the device is removed: 100 times in the long form.
fn removals() -> u32 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 100 } else { 3 }
}
