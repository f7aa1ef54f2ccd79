//! Settings: the object `app` of the configuration.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::MacAddress;

/// All settings. Only `port` is required.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Direction of the frames.
    #[serde(default)]
    pub mode: Mode,
    /// Name of the port that sends frames; with `receive`, of the port that receives them.
    pub port: String,
    /// Name of the port that receives frames with `one-way`.
    pub sink_port: Option<String>,
    /// Number of the run, carried by every frame; random when absent. A receiver needs the number
    /// of its sender.
    pub run: Option<u16>,
    /// Set of flows.
    #[serde(default)]
    pub flows: Flows,
    /// Frame length in bytes without the check sequence: a number, a list to cycle through, or
    /// `"imix"`.
    #[serde(default)]
    pub frame_bytes: FrameBytes,
    /// Packets a second over all lanes; 0 means as fast as possible.
    #[serde(default)]
    pub rate_packets_per_second: u64,
    /// Maximum number of outstanding frames over all lanes: a frame leaves when another has come
    /// back. 0 means no limit, 1 is ping-pong.
    #[serde(default)]
    pub outstanding_packets: u64,
    /// Timeout of a full window in milliseconds. When no frame has left or come back for this time,
    /// all outstanding frames count as lost and sending continues.
    #[serde(default = "default_answer_timeout")]
    pub answer_timeout_ms: u64,
    /// Number of packets to send, or with `receive` to wait for, over all lanes; 0 means no limit.
    #[serde(default)]
    pub count_packets: u64,
    /// Time to send, or with `receive` to wait, in milliseconds; 0 means until `count-packets` or a
    /// signal.
    #[serde(default)]
    pub duration_ms: u64,
    /// Time to wait for late frames after the last was sent, in milliseconds. The run ends when no
    /// frame has arrived for this time.
    #[serde(default = "default_linger")]
    pub linger_ms: u64,
    /// Share of the packets or of the duration at the start whose latency does not count, 0 to 90
    /// percent. Requires `count-packets` or `duration-ms`.
    #[serde(default)]
    pub warm_up_percent: u8,
    /// Maximum number of packets sent at once, 1 to 1024, also after a stall. The lane's `burst`
    /// limits a turn too.
    #[serde(default = "default_burst")]
    pub burst_packets: u16,
    /// Number of packets of a flow within which a late frame is distinguished from a duplicate: a
    /// power of two, 64 to 65536.
    #[serde(default = "default_window")]
    pub window_packets: u32,
    /// Part of a received frame that is checked.
    #[serde(default)]
    pub verify: Verify,
    /// Series of trials instead of one run. Each line on standard input is a JSON object of the
    /// settings that differ from these. The reply is a report on one line of standard output.
    #[serde(default)]
    pub trials_from_input: bool,
    /// Path of the JSON report; `-` means standard output.
    pub report: Option<String>,
}

/// Direction of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// From `port` back to `port`; a device beyond it reflects the frames.
    #[default]
    RoundTrip,
    /// From `port` to `sink-port`, both of this process.
    OneWay,
    /// From `port`; another process receives.
    Send,
    /// To `port`; another process sends.
    Receive,
}

/// Part of a received frame that is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// Mark at the start of the payload.
    Mark,
    /// Mark and the checksums of IPv4 and UDP, which cover all but the Ethernet header.
    #[default]
    Frame,
}

/// Set of flows. Addresses and ports count up from the first one. Source addresses change fastest,
/// then destination addresses, source ports and destination ports.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Flows {
    /// Number of flows, 1 to 65536.
    pub count: u32,
    /// Source MAC address.
    #[serde(deserialize_with = "from_text")]
    pub source_mac: MacAddress,
    /// Destination MAC address.
    #[serde(deserialize_with = "from_text")]
    pub destination_mac: MacAddress,
    /// VLAN identifier (IEEE 802.1Q), 0 to 4094; no tag when absent.
    pub vlan: Option<u16>,
    /// First source address, IPv4 or IPv6.
    pub source_address: IpAddr,
    /// Number of source addresses.
    pub source_addresses: u32,
    /// First destination address, of the same family.
    pub destination_address: IpAddr,
    /// Number of destination addresses.
    pub destination_addresses: u32,
    /// First UDP source port.
    pub source_port: u16,
    /// Number of source ports; as many as `count` needs when absent.
    pub source_ports: Option<u32>,
    /// First UDP destination port.
    pub destination_port: u16,
    /// Number of destination ports.
    pub destination_ports: u32,
}

impl Default for Flows {
    /// Returns one flow between the benchmark addresses of RFC 2544 appendix C.2.2.
    fn default() -> Self {
        Self {
            count: 1,
            source_mac: MacAddress([0x02, 0, 0, 0, 0, 1]),
            destination_mac: MacAddress([0x02, 0, 0, 0, 0, 2]),
            vlan: None,
            source_address: Ipv4Addr::new(198, 18, 0, 1).into(),
            source_addresses: 1,
            destination_address: Ipv4Addr::new(198, 19, 0, 1).into(),
            destination_addresses: 1,
            source_port: 49152,
            source_ports: None,
            destination_port: 2152,
            destination_ports: 1,
        }
    }
}

/// Frame length in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "not a number of bytes, a list of such numbers, or \"imix\"")]
pub enum FrameBytes {
    /// One length for all frames.
    One(u32),
    /// Lengths that each flow cycles through.
    List(Vec<u32>),
    /// Named mix.
    Named(Mix),
}

impl Default for FrameBytes {
    fn default() -> Self {
        Self::One(60)
    }
}

/// Named mix of frame lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Simple Internet mix: 7 frames of 60 bytes (or the minimum of these flows), 4 of 590 bytes
    /// and 1 of 1514 bytes.
    Imix,
}

/// Invalid setting. The message names the key, the reason and the remedy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("app.{key}: {reason}")]
pub struct SettingsError {
    /// Key below `app`.
    pub key: &'static str,
    /// Problem and allowed values.
    pub reason: String,
}

pub(crate) fn refuse<T>(key: &'static str, reason: impl Into<String>) -> Result<T, SettingsError> {
    Err(SettingsError { key, reason: reason.into() })
}

impl Settings {
    /// Returns true if this process sends frames.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.mode != Mode::Receive
    }

    /// Returns true if this process receives frames.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.mode != Mode::Send
    }

    /// Checks the settings that do not depend on flows and ports.
    ///
    /// # Errors
    /// Names the setting that is not allowed or contradicts another.
    pub fn check(&self) -> Result<(), SettingsError> {
        match (self.mode, &self.sink_port) {
            (Mode::OneWay, None) => {
                refuse("sink-port", "`one-way` needs the name of the port that frames arrive at")?;
            }
            (Mode::OneWay, Some(_)) | (_, None) => {}
            (_, Some(_)) => refuse("sink-port", "only `one-way` has one; set `mode` or remove it")?,
        }
        if self.trials_from_input && matches!(self.mode, Mode::Send | Mode::Receive) {
            let reason = "a trial is over when what was sent has come back; use `round-trip` or \
                          `one-way`, or remove it";
            refuse("trials-from-input", reason)?;
        }
        if self.mode == Mode::Receive && self.run.is_none() {
            refuse("run", "`receive` needs the number of the run that the sender has, 0 to 65535")?;
        }
        if self.outstanding_packets > 0 && matches!(self.mode, Mode::Send | Mode::Receive) {
            let reason = "only a sender that also receives can wait for answers; use `round-trip` \
                          or `one-way`, or remove it";
            refuse("outstanding-packets", reason)?;
        }
        if self.outstanding_packets > 0 && self.answer_timeout_ms == 0 {
            refuse("answer-timeout-ms", "is 0, so nothing would be waited for; write 1 or more")?;
        }
        if !(1..=1024).contains(&self.burst_packets) {
            refuse("burst-packets", format!("is {}; allowed is 1 to 1024", self.burst_packets))?;
        }
        let window = self.window_packets;
        if !window.is_power_of_two() || !(64..=65536).contains(&window) {
            let reason = format!("is {window}; allowed is a power of two from 64 to 65536");
            refuse("window-packets", reason)?;
        }
        let bounded = self.count_packets > 0 || self.duration_ms > 0;
        if self.warm_up_percent > 90 {
            refuse("warm-up-percent", format!("is {}; allowed is 0 to 90", self.warm_up_percent))?;
        }
        if self.warm_up_percent > 0 && !(bounded && self.sends()) {
            let reason = "is a share of what is sent, of which no end is set; set \
                          `count-packets` or `duration-ms` of a sender, or remove it";
            refuse("warm-up-percent", reason)?;
        }
        Ok(())
    }
}

fn default_answer_timeout() -> u64 {
    100
}

fn default_linger() -> u64 {
    500
}

fn default_burst() -> u16 {
    32
}

fn default_window() -> u32 {
    4096
}

fn from_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests;
