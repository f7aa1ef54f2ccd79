//! Ports that are VLANs of other ports.

use super::{Hardware, OpenContext, kernel_path};
use crate::Error;
use crate::config::plan::KernelPlan;

/// Opens the ports that are VLANs. They have no queues: lanes find their packets among those of the
/// port that carries them.
pub(super) fn open(context: &mut OpenContext<'_>) -> Result<(), Error> {
    let plan = context.plan;
    for port in &plan.ports {
        let Some(vlan) = port.vlan else { continue };
        let (number, carrier) = (usize::from(port.id.0), usize::from(vlan.carrier.0));
        context.hardware[number] = hardware(context, carrier);
        kernel_path::open_tap(context, port)?;
        let facts = &context.facts[carrier];
        let (queues, interface) = (facts.queues, facts.interface.clone());
        let kernel = facts.kernel.clone().filter(|_| matches!(port.kernel, KernelPlan::OfCarrier));
        let facts = &mut context.facts[number];
        facts.mode = format!("VLAN {} of {}", vlan.id, plan.ports[carrier].name);
        (facts.queues, facts.interface) = (queues, interface);
        facts.kernel = facts.kernel.take().or(kernel);
    }
    Ok(())
}

/// Returns address and MTU of the device or the interface that carries a VLAN.
fn hardware(context: &OpenContext<'_>, carrier: usize) -> Hardware {
    let interface = context.shared_interfaces.iter().find(|(number, _)| *number == carrier);
    let Some((_, interface)) = interface else { return context.hardware[carrier] };
    let mac = (interface.mac != [0; 6]).then_some(interface.mac);
    Hardware { mac, mtu: Some(interface.mtu) }
}
