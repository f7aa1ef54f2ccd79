//! Ports on an interface that Linux has too: AF_XDP and AF_PACKET.

use fastlane_af_xdp as af_xdp;
use fastlane_core::{KernelPath, Queue};
use fastlane_kernel::reentry::{self, Method};
use fastlane_kernel::{Interface, af_packet};

use super::{Inherited, Opening, interface};
use crate::Error;
use crate::config::plan::{KernelPlan, Plan, PortPlan};
use crate::config::written::{self, AfXdpMode};

/// The socket mark of frames given back to Linux on an AF_PACKET port, so that they are not taken
/// again. Steering clears it before Linux's own rules see the frame.
const REENTRY_MARK: u32 = 0x_fa57_1a4e;

impl Opening<'_> {
    /// Attaches the steering program; the sockets come when all devices are there.
    pub(super) fn attach_af_xdp(
        &mut self,
        port: &PortPlan,
        xdp: &written::AfXdp,
    ) -> Result<(), Error> {
        let refuse = |error: af_xdp::Error| Error::port(&port.name, error);
        let interface = interface::of_af_xdp(self.plan, port, xdp)?;
        interface::warn_if_down(port, &interface);
        if interface.has_offload("rx-vlan-offload") && !interface.is_virtual {
            tracing::warn!(
                "port `{}`: {name} takes VLAN tags out of frames, where AF_XDP cannot see them; \
                 if there are VLANs, `ethtool -K {name} rxvlan off`",
                port.name,
                name = interface.name
            );
        }
        let settings = af_xdp::Settings {
            interface: interface.name.clone(),
            index: interface.index,
            mode: match xdp.mode {
                AfXdpMode::Auto => af_xdp::Mode::Auto,
                AfXdpMode::ZeroCopy => af_xdp::Mode::ZeroCopy,
                AfXdpMode::NativeCopy => af_xdp::Mode::NativeCopy,
                AfXdpMode::GenericCopy => af_xdp::Mode::GenericCopy,
            },
            receive_ring: xdp.receive_ring,
            transmit_ring: xdp.transmit_ring,
            need_wakeup: xdp.need_wakeup,
            busy_poll: xdp
                .busy_poll
                .map(|poll| af_xdp::BusyPoll { microseconds: poll.time_us, budget: poll.budget }),
            virtual_device: interface.is_virtual,
        };
        let longest = af_xdp::longest_frame(self.plan.frame_size);
        let inherited = self.inherited.as_mut().filter(|inherited| inherited.has_sockets());
        let device = match inherited {
            Some(inherited) => inherited
                .device(port, settings)
                .map_err(|reason| Error::port(&port.name, reason))?,
            None => af_xdp::Device::open(settings, &port.rules, longest).map_err(refuse)?,
        };
        if matches!(port.kernel, KernelPlan::ReEnter) {
            // mirred is the way that also holds in generic mode, where a redirect would loop.
            self.reenter(port, &interface, Method::Mirred)?;
        }
        self.facts[usize::from(port.id.0)].interface = Some(interface.name.clone());
        self.twins[usize::from(port.id.0)] = Some(interface.index);
        self.devices.af_xdp.push((usize::from(port.id.0), device));
        self.xdp_queues.push(interface.receive_queues);
        Ok(())
    }

    /// Opens the AF_XDP sockets, lane by lane: those of a lane share its pool.
    pub(super) fn open_af_xdp_sockets(&mut self) -> Result<(), Error> {
        let mut inherited = self.inherited.take().filter(Inherited::has_sockets);
        for lane in 0..self.lanes.len() {
            let opened = match &mut inherited {
                Some(inherited) => self.adopt_lane(lane, inherited)?,
                None => self.open_lane(lane)?,
            };
            self.keep_pool(lane, &opened);
            for queue in opened {
                let port = &self.plan.ports[usize::from(queue.port.0)];
                let mode = &mut self.facts[usize::from(queue.port.0)].mode;
                let obtained = queue.mode.to_string();
                if !mode.contains(&obtained) {
                    let separator = if mode.is_empty() { "" } else { " and " };
                    mode.push_str(separator);
                    mode.push_str(&obtained);
                }
                queue.notes.iter().for_each(|note| tracing::info!("port `{}`: {note}", port.name));
                self.add(lane, port, Box::new(queue.handle));
            }
        }
        self.keep_devices();
        Ok(())
    }

    /// Opens the sockets of a lane.
    fn open_lane(&mut self, lane: usize) -> Result<Vec<af_xdp::OpenedQueue>, Error> {
        let mut requests = Vec::new();
        for ((number, device), queues) in self.devices.af_xdp.iter_mut().zip(&self.xdp_queues) {
            let port = &self.plan.ports[*number];
            let mine = (0..*queues).filter(|queue| Plan::lane_of(port, *queue as usize) == lane);
            let queues: Vec<u32> = mine.collect();
            if !queues.is_empty() {
                requests.push(af_xdp::OpenRequest { device, port: port.id, queues });
            }
        }
        if requests.is_empty() {
            return Ok(vec![]);
        }
        let ports = requests.iter().map(|request| usize::from(request.port.0));
        let names: Vec<&str> = ports.map(|number| &*self.plan.ports[number].name).collect();
        let names = names.join("`, `");
        let pool = &mut self.lanes[lane].pool;
        af_xdp::open_lane(pool, &mut requests).map_err(|error| Error::port(&names, error))
    }

    pub(super) fn open_af_packet(
        &mut self,
        port: &PortPlan,
        packet: &written::AfPacket,
    ) -> Result<(), Error> {
        let refuse = |error: fastlane_kernel::Error| Error::port(&port.name, error);
        let interface = interface::of_af_packet(self.plan, port, packet)?;
        interface::warn_if_down(port, &interface);
        let settings = af_packet::AfPacketSettings {
            interface: interface.clone(),
            queues: port.lanes.len(),
            ring_frames: packet.ring,
            max_length: interface::room(self.plan) as u32,
            promiscuous: packet.promiscuous,
            mark: REENTRY_MARK,
        };
        let mut device = af_packet::Device::open(&settings, &port.rules).map_err(refuse)?;
        for (number, lane) in port.lanes.iter().enumerate() {
            if let Some(queue) = device.queue(port.id, number) {
                self.add(*lane, port, Box::new(queue));
            }
        }
        if matches!(port.kernel, KernelPlan::ReEnter) {
            self.reenter(port, &interface, Method::Redirect { mark: REENTRY_MARK })?;
        }
        let number = usize::from(port.id.0);
        self.facts[number].mode = "ring in, sendmmsg out".to_owned();
        self.facts[number].interface = Some(interface.name);
        self.twins[number] = Some(interface.index);
        self.devices.af_packet.push((number, device));
        Ok(())
    }

    fn reenter(
        &mut self,
        port: &PortPlan,
        interface: &Interface,
        how: Method,
    ) -> Result<(), Error> {
        let queues = reentry::open(interface, how, port.lanes.len())
            .map_err(|error| Error::port(&port.name, error))?;
        let number = usize::from(port.id.0);
        for (lane, queue) in port.lanes.iter().zip(queues) {
            let queue: Box<dyn Queue> = Box::new(queue.with_port(port.id));
            self.lanes[*lane].kernel[number] = Some(KernelPath { queue, receives: false });
        }
        self.facts[number].kernel = Some("re-enter".to_owned());
        Ok(())
    }
}
