//! Steering program for tests without privilege: it records its rules and can refuse sockets.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fastlane_af_xdp as af_xdp;
use fastlane_kernel::af_packet::{self, AfPacketSettings};
use fastlane_kernel::{self as kernel, Interface};
use fastlane_steer::{Counts, Rules};
use serde_json::json;

use super::ReopenedDevice;
use crate::config::raw;

/// Steering program of ports on `lo`.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeSteering {
    rules: Arc<Mutex<Vec<Rules>>>,
    refuses_sockets: bool,
    is_released: Arc<AtomicBool>,
}

impl FakeSteering {
    /// Creates one that may refuse sockets.
    pub(crate) fn new(refuses_sockets: bool) -> Self {
        Self { refuses_sockets, ..Self::default() }
    }

    /// Returns the rules that it got since the last call.
    pub(crate) fn take_rules(&self) -> Vec<Rules> {
        std::mem::take(&mut self.rules.lock().unwrap())
    }

    /// Returns true if it has left all frames to Linux.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Relaxed)
    }

    fn record(&self, rules: &Rules) {
        self.rules.lock().unwrap().push(rules.clone());
    }

    /// Creates a reopened AF_XDP device with one socket, which was opened with these rules.
    pub(crate) fn af_xdp(&self, rules: &Rules) -> ReopenedDevice {
        let raw: raw::AfXdp = serde_json::from_value(json!({"interface": "lo"})).unwrap();
        let interface = Interface::query("lo").unwrap();
        let (index, settings) = (interface.index, raw.device_settings(&interface));
        let (is_native, copies, max_length) = (true, true, 2048);
        let description =
            af_xdp::DeviceDescription { interface: index, is_native, copies, max_length };
        let steering = Box::new(self.clone());
        let device = af_xdp::Device::with_steering(settings, &description, 1500, steering);
        let socket = File::open("/dev/null").unwrap();
        ReopenedDevice::AfXdp { device, rules: rules.clone(), sockets: vec![(0, socket.into())] }
    }

    /// Creates a reopened AF_PACKET device, which was opened with these rules.
    pub(crate) fn af_packet(&self, rules: &Rules) -> ReopenedDevice {
        let settings = AfPacketSettings::new(Interface::query("lo").unwrap());
        let steering = Box::new(self.clone());
        let device = af_packet::Device::with_sockets(&settings, vec![], steering).unwrap();
        ReopenedDevice::AfPacket { device: Box::new(device), rules: rules.clone() }
    }
}

impl af_xdp::Steering for FakeSteering {
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), af_xdp::Error> {
        self.record(rules);
        Ok(())
    }

    fn release(&mut self) -> Result<(), af_xdp::Error> {
        self.is_released.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn set_max_length(&mut self, _: u32) -> Result<(), af_xdp::Error> {
        Ok(())
    }

    fn insert_socket(&mut self, queue: u32, _: BorrowedFd<'_>) -> Result<(), af_xdp::Error> {
        let refusal = af_xdp::Error::RingSize { interface: "lo".into(), ring: "fake", size: queue };
        if self.refuses_sockets { Err(refusal) } else { Ok(()) }
    }

    fn counts(&self) -> Result<Counts, af_xdp::Error> {
        Ok(Counts::default())
    }
}

impl af_packet::Steering for FakeSteering {
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), kernel::Error> {
        self.record(rules);
        Ok(())
    }

    fn release(&mut self) -> Result<(), kernel::Error> {
        self.is_released.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn counts(&self) -> Result<Counts, kernel::Error> {
        Ok(Counts::default())
    }
}
