//! NUMA check: lanes whose CPU is on another node than the device of their port.

use std::path::Path;

use crate::config::plan::{Plan, PortPlan};
use crate::config::raw::Driver;

/// Logs the lanes on another NUMA node than the device of their port, because each packet crosses
/// nodes then.
pub(crate) fn report(plan: &Plan) {
    for port in &plan.ports {
        if let Some(remark) = remark(plan, port, Path::new("/sys")) {
            tracing::info!("{remark}");
        }
    }
}

fn remark(plan: &Plan, port: &PortPlan, sys: &Path) -> Option<String> {
    let (what, device) = match &port.driver {
        Driver::AfXdp(xdp) => (&xdp.interface, format!("class/net/{}/device", xdp.interface)),
        Driver::AfPacket(it) => (&it.interface, format!("class/net/{}/device", it.interface)),
        Driver::Dpdk(dpdk) => {
            let device = dpdk.device.as_ref()?;
            let address = device.split(',').next().unwrap_or_default();
            (device, format!("bus/pci/devices/{address}"))
        }
        _ => return None,
    };
    let read = |path: String| std::fs::read_to_string(sys.join(path)).ok();
    // -1 if the node is unknown (kernel: Documentation/ABI/testing/sysfs-bus-pci).
    let node: u32 = read(format!("{device}/numa_node"))?.trim().parse().ok()?;
    let near = read(format!("devices/system/node/node{node}/cpulist"))?;
    let cpus = port.lanes.iter().filter_map(|lane| plan.lanes[*lane].cpu);
    let far: Vec<String> =
        cpus.filter(|cpu| !contains(&near, *cpu)).map(|cpu| cpu.to_string()).collect();
    (!far.is_empty()).then(|| {
        format!(
            "port `{}`: {what} is at NUMA node {node} (CPUs {}), its lanes on CPU {} are not; \
             packets cross over",
            port.name,
            near.trim(),
            far.join(", ")
        )
    })
}

/// Returns true if a list such as `0-3,8` contains the CPU.
fn contains(list: &str, cpu: usize) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&cpu),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lanes_far_from_their_device_are_named() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &str| {
            let path = sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        write("class/net/far0/device/numa_node", "1\n");
        write("class/net/none0/device/numa_node", "-1\n");
        write("devices/system/node/node1/cpulist", "4-7,12\n");
        let remark = |interface: &str, cpus: &[usize]| {
            let driver = json!({ "af-packet": { "interface": interface } });
            let raw = json!({
                "lanes": { "cpus": cpus }, "ports": { "wire": { "driver": driver } }
            });
            let plan = Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap();
            remark(&plan, &plan.ports[0], sys.path())
        };
        assert_eq!(remark("far0", &[4, 12]), None);
        assert_eq!(remark("none0", &[0]), None);
        assert_eq!(remark("lo", &[0]), None, "no device");
        let expected = "port `wire`: far0 is at NUMA node 1 (CPUs 4-7,12), its lanes on CPU 3, 8 \
                        are not; packets cross over";
        assert_eq!(remark("far0", &[3, 5, 8]).as_deref(), Some(expected));
    }
}
