//! What a user can set: the object `app` of the configuration.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::MacAddress;

/// All settings. Only `port` must be given.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Which way the frames go.
    #[serde(default)]
    pub mode: Mode,
    /// The name of the port that frames leave by; with `receive` the one that they arrive at.
    pub port: String,
    /// With `one-way`, the name of the port that frames arrive at.
    pub sink_port: Option<String>,
    /// The number of the run, which every frame carries; drawn by lot when absent. A `receive`
    /// needs the one that its `send` has.
    pub run: Option<u16>,
    /// The flows.
    #[serde(default)]
    pub flows: Flows,
    /// Bytes in a frame without the check sequence: a number, a list that is cycled through, or
    /// `"imix"`.
    #[serde(default)]
    pub frame_bytes: FrameBytes,
    /// Packets a second over all lanes; 0 is as fast as possible.
    #[serde(default)]
    pub rate_packets_per_second: u64,
    /// The most frames on their way at a time over all lanes: a new one leaves when another has
    /// come back. 0 is no such limit, 1 is ping-pong.
    #[serde(default)]
    pub outstanding_packets: u64,
    /// With `outstanding-packets`: when nothing has come back for so long, all that is on its way
    /// counts as lost and sending goes on.
    #[serde(default = "default_answer_timeout")]
    pub answer_timeout_ms: u64,
    /// Packets to send, or with `receive` to wait for, over all lanes; 0 is no limit.
    #[serde(default)]
    pub count_packets: u64,
    /// How long to send, or with `receive` to wait; 0 is until `count-packets` or a signal.
    #[serde(default)]
    pub duration_ms: u64,
    /// How long to collect late frames after the last was sent: the run ends when nothing has come
    /// for so long.
    #[serde(default = "default_linger")]
    pub linger_ms: u64,
    /// The share of the packets, or of the duration, at the start whose latency does not count, 0
    /// to 90. Needs `count-packets` or `duration-ms`.
    #[serde(default)]
    pub warm_up_percent: u8,
    /// The most packets sent at once, 1 to 1024, also when the lane was late (in a turn, a lane's
    /// `burst` limits it too).
    #[serde(default = "default_burst")]
    pub burst_packets: u16,
    /// How far back in a flow a late frame is told from a duplicate: a power of two, 64 to 65536.
    #[serde(default = "default_window")]
    pub window_packets: u32,
    /// How much of a received frame is checked.
    #[serde(default)]
    pub verify: Verify,
    /// A series of trials instead of one run: each line on standard input is a JSON object of the
    /// settings that differ from these, each is answered by a report on a line of standard output.
    #[serde(default)]
    pub trials_from_input: bool,
    /// The file that a JSON report is written to; `-` is standard output.
    pub report: Option<String>,
}

/// Which way the frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Out of `port` and back to it; something there reflects them.
    #[default]
    RoundTrip,
    /// Out of `port`, in at `sink-port`, both here.
    OneWay,
    /// Out of `port`; another process receives.
    Send,
    /// In at `port`; another process sends.
    Receive,
}

/// How much of a received frame is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// The mark at the start of the payload.
    Mark,
    /// The mark and the checksums of IPv4 and UDP, which cover all but the Ethernet header.
    #[default]
    Frame,
}

/// A set of flows. Addresses and ports count up from the first one; source addresses change
/// fastest, then destination addresses, source ports, destination ports.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Flows {
    /// How many, 1 to 65536.
    pub count: u32,
    /// Where the frames come from.
    #[serde(deserialize_with = "from_text")]
    pub source_mac: MacAddress,
    /// Where the frames go.
    #[serde(deserialize_with = "from_text")]
    pub destination_mac: MacAddress,
    /// The identifier of a VLAN tag (IEEE 802.1Q), 0 to 4094; none when absent.
    pub vlan: Option<u16>,
    /// The first source address, IPv4 or IPv6.
    pub source_address: IpAddr,
    /// How many source addresses.
    pub source_addresses: u32,
    /// The first destination address, of the same family.
    pub destination_address: IpAddr,
    /// How many destination addresses.
    pub destination_addresses: u32,
    /// The first UDP source port.
    pub source_port: u16,
    /// How many source ports; as many as `count` needs when absent.
    pub source_ports: Option<u32>,
    /// The first UDP destination port.
    pub destination_port: u16,
    /// How many destination ports.
    pub destination_ports: u32,
}

impl Default for Flows {
    /// One flow between the benchmark addresses of RFC 2544 appendix C.2.2.
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

/// Bytes in a frame.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "not a number of bytes, a list of such numbers, or \"imix\"")]
pub enum FrameBytes {
    /// All the same.
    One(u32),
    /// One after the other, in each flow.
    List(Vec<u32>),
    /// A named mix.
    Named(Mix),
}

impl Default for FrameBytes {
    fn default() -> Self {
        Self::One(60)
    }
}

/// A mix of frame lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// The simple Internet mix: 7 of 60 bytes (or of the shortest that these flows can have), 4 of
    /// 590, 1 of 1514.
    Imix,
}

/// Settings that cannot be meant; each names the key, the reason and the remedy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("app.{key}: {reason}")]
pub struct SettingsError {
    /// The key below `app`.
    pub key: &'static str,
    /// What is wrong and what is allowed.
    pub reason: String,
}

pub(crate) fn refuse<T>(key: &'static str, reason: impl Into<String>) -> Result<T, SettingsError> {
    Err(SettingsError { key, reason: reason.into() })
}

impl Settings {
    /// Whether frames are sent.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.mode != Mode::Receive
    }

    /// Whether frames are expected to arrive.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.mode != Mode::Send
    }

    /// Checks what can be told without flows and ports.
    ///
    /// # Errors
    /// Says which value is not allowed or contradicts another.
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
