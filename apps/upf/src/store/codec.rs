//! Encoding of a session as bits, in its record and parts.
//!
//! Format version 4: the fields in the order below. Version 3 has one end marker of a FAR, without
//! its time. Version 2 has no S-NSSAI, and version 1 no CHOOSE ID in F-TEIDs either.
//!
//! A list has a bit that is set if it is not empty, and its length. An optional value has a bit
//! that is set if it is present. A session with two PDRs, two FARs, a QER and a URR takes about 170
//! bytes and fits its record. Fields of the record itself (number, version, association) are not
//! repeated.

mod bit_stream;

use self::bit_stream::{BitReader, BitWriter, Stored, stored};
use super::record::{DELETED, SessionRecord};
use crate::session::{
    Actions, Buffering, CpFSeid, Destination, DownlinkData, EndMarker, Far, Filter,
    FlowDescription, Forwarding, Gate, LocalTunnel, Measure, OuterHeader, Pdr, Prefix, Progress,
    Qer, Quota, Rate, Redirect, Removal, Reporting, ReportingTriggers, SNssai, Session,
    SessionIndex, Source, Split, Unacknowledged, Urr, UsageReport, UsageReportTrigger, UserAddress,
    Volume,
};

/// Version of the format.
pub(super) const FORMAT: u8 = 4;
/// First version of the format that has CHOOSE IDs.
const WITH_CHOOSE_ID: u8 = 2;
/// First version of the format that has S-NSSAIs.
const WITH_S_NSSAI: u8 = 3;
/// First version of the format that has several end markers of a FAR.
const WITH_END_MARKERS: u8 = 4;

/// Encodes a session.
pub(super) fn encode(session: &Session, buffer: Vec<u8>) -> Vec<u8> {
    encode_as(FORMAT, session, buffer)
}

/// Encodes a session in a version of the format.
fn encode_as(format: u8, session: &Session, buffer: Vec<u8>) -> Vec<u8> {
    let mut to = BitWriter::into(format, buffer);
    session.cp_fseid.put(&mut to);
    session.discarded.put(&mut to);
    session.established.put(&mut to);
    session.pdn_type.put(&mut to);
    session.supi.put(&mut to);
    session.network.put(&mut to);
    if format >= WITH_S_NSSAI {
        session.s_nssai.put(&mut to);
    }
    session.inactivity_s.put(&mut to);
    session.fq_csids.put(&mut to);
    session.pdrs.put(&mut to);
    session.fars.put(&mut to);
    session.qers.put(&mut to);
    session.urrs.put(&mut to);
    session.bars.put(&mut to);
    session.reporting.put(&mut to);
    to.finish()
}

/// Decodes a session. Returns `None` if the bytes are invalid.
pub(super) fn decode(id: SessionIndex, record: &SessionRecord, bytes: &[u8]) -> Option<Session> {
    if !(1..=FORMAT).contains(&record.format) {
        return None;
    }
    let from = &mut BitReader::of(record.format, bytes);
    Some(Session {
        id,
        seid: record.seid,
        cp_fseid: Stored::get(from)?,
        peer: record.peer,
        version: record.version,
        generation: record.generation,
        discarded: Stored::get(from)?,
        is_deleted: record.flags & DELETED != 0,
        established: Stored::get(from)?,
        pdn_type: Stored::get(from)?,
        supi: Stored::get(from)?,
        network: Stored::get(from)?,
        s_nssai: if record.format >= WITH_S_NSSAI { Stored::get(from)? } else { None },
        inactivity_s: Stored::get(from)?,
        fq_csids: Stored::get(from)?,
        pdrs: Stored::get(from)?,
        fars: Stored::get(from)?,
        qers: Stored::get(from)?,
        urrs: Stored::get(from)?,
        bars: Stored::get(from)?,
        reporting: Stored::get(from)?,
    })
}

stored! {
    CpFSeid { seid, address }
    SNssai { sst, sd }
    Pdr {
        id, precedence, source, instance, tunnel, user, framed, filters, qfis, removal, far, qers,
        urrs, predefined,
    }
    UserAddress { v4, v6, is_ours }
    Prefix { address, length }
    Filter { id, flow, tos, spi, flow_label }
    FlowDescription { protocol, remote, remote_ports, local, local_ports }
    Removal { description, extension }
    Actions { drop, forward, buffer, notify, duplicate }
    Forwarding { destination, instance, outer, marking, redirect }
    OuterHeader { teid, v4, v6, port }
    Buffering { id, notification_delay_ms, packets, duration_ms }
    Qer {
        id, correlation, uplink, downlink, maximum, guaranteed, qfi, reflective, paging_policy,
        window_ms, line,
    }
    Rate { uplink, downlink }
    Urr {
        id, measure, triggers, information, period_s, volume_threshold, time_threshold_s, quota,
        inactivity_s, quota_holding_s, monitoring_time, subsequent_volume_threshold,
        subsequent_time_threshold_s, subsequent_quota, linked, exhausted_far, progress,
    }
    Measure { duration, volume, event }
    Volume { total, uplink, downlink }
    Quota { volume, time_s, validity_s }
    Split { counters, elapsed, at }
    Reporting { notified, awaited_from, is_inactive, unacknowledged }
    Unacknowledged { message, is_inactivity, downlink, usage }
    DownlinkData { pdr, qfi, dscp }
    UsageReport {
        urr, sequence, triggers, information, measured, counts, seconds, since, at, first, last,
    }
}

impl Stored for LocalTunnel {
    fn put(&self, to: &mut BitWriter) {
        ((self.teid, self.v4), (self.v6, self.is_ours)).put(to);
        if to.format() >= WITH_CHOOSE_ID {
            self.choose_id.put(to);
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        let ((teid, v4), (v6, is_ours)) = Stored::get(from)?;
        let has_choose_id = from.format() >= WITH_CHOOSE_ID;
        let choose_id = if has_choose_id { Stored::get(from)? } else { None };
        Some(Self { teid, v4, v6, is_ours, choose_id })
    }
}

impl Stored for Far {
    fn put(&self, to: &mut BitWriter) {
        (self.id, self.actions).put(to);
        self.forwarding.put(to);
        self.duplicating.put(to);
        self.bar.put(to);
        match to.format() {
            WITH_END_MARKERS.. => self.end_markers.put(to),
            _ => self.end_markers.last().copied().put(to),
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        let ((id, actions), forwarding) = Stored::get(from)?;
        let (duplicating, bar) = Stored::get(from)?;
        let end_markers = match from.format() {
            WITH_END_MARKERS.. => Stored::get(from)?,
            _ => Option::<EndMarker>::get(from)?.into_iter().collect(),
        };
        Some(Self { id, actions, forwarding, duplicating, bar, end_markers })
    }
}

impl Stored for EndMarker {
    fn put(&self, to: &mut BitWriter) {
        ((self.to, self.instance), self.version).put(to);
        if to.format() >= WITH_END_MARKERS {
            self.at.put(to);
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        let ((to, instance), version) = Stored::get(from)?;
        let at = if from.format() >= WITH_END_MARKERS { Stored::get(from)? } else { 0 };
        Some(Self { to, instance, version, at })
    }
}

/// Implements `Stored` for trigger flags, of which octets 5 to 7 are defined, as 32 bits.
macro_rules! triggers {
    ($($type:ident)*) => { $(
        impl Stored for $type {
            fn put(&self, to: &mut BitWriter) {
                (self.0 as u32).put(to);
            }

            fn get(from: &mut BitReader<'_>) -> Option<Self> {
                Some(Self(u32::get(from)?.into()))
            }
        }
    )* };
}

triggers! { ReportingTriggers UsageReportTrigger }

/// Implements `Stored` for enumerations of up to four variants, as two bits.
macro_rules! few {
    ($($type:ident { $($variant:ident = $number:literal),* })*) => { $(
        impl Stored for $type {
            fn put(&self, to: &mut BitWriter) {
                to.put(match self { $(Self::$variant => $number),* }, 2);
            }

            fn get(from: &mut BitReader<'_>) -> Option<Self> {
                match from.get(2)? { $($number => Some(Self::$variant),)* _ => None }
            }
        }
    )* };
}

few! {
    Source { Access = 0, Core = 1, SgiLan = 2, Control = 3 }
    Destination { Access = 0, Core = 1, SgiLan = 2, Control = 3 }
    Gate { Open = 0, Closed = 1 }
}

impl Stored for Redirect {
    fn put(&self, to: &mut BitWriter) {
        let kind = |to: &mut BitWriter, kind| to.put(kind, 2);
        match self {
            Self::Address(address) => {
                kind(to, 0);
                address.put(to);
            }
            Self::Url(url) => {
                kind(to, 1);
                url.put(to);
            }
            Self::Sip(uri) => {
                kind(to, 2);
                uri.put(to);
            }
            Self::Both(v4, v6) => {
                kind(to, 3);
                v4.put(to);
                v6.put(to);
            }
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(match from.get(2)? {
            0 => Self::Address(Stored::get(from)?),
            1 => Self::Url(Stored::get(from)?),
            2 => Self::Sip(Stored::get(from)?),
            _ => Self::Both(Stored::get(from)?, Stored::get(from)?),
        })
    }
}

/// Encodes values as differences to close ones, which are small.
fn put_after(to: &mut BitWriter, value: [u64; 4], base: [u64; 4]) {
    value.iter().zip(base).for_each(|(value, base)| to.number(zigzag(value.wrapping_sub(base))));
}

fn get_after(from: &mut BitReader<'_>, base: [u64; 4]) -> Option<[u64; 4]> {
    let differences = <[u64; 4]>::get(from)?;
    Some(std::array::from_fn(|word| base[word].wrapping_add(unzigzag(differences[word]))))
}

const fn zigzag(value: u64) -> u64 {
    value << 1 ^ (value.cast_signed() >> 63).cast_unsigned()
}

const fn unzigzag(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

/// Encodes one number as the difference to a close one.
fn put_near(to: &mut BitWriter, value: u64, base: u64) {
    to.number(zigzag(value.wrapping_sub(base)));
}

fn get_near(from: &mut BitReader<'_>, base: u64) -> Option<u64> {
    Some(base.wrapping_add(unzigzag(from.number()?)))
}

impl Stored for Progress {
    fn put(&self, to: &mut BitWriter) {
        (self.line, (self.sequence, self.since)).put(to);
        self.reported.put(to);
        put_after(to, self.granted, self.reported);
        (self.granted_at, (self.elapsed, self.running)).put(to);
        put_near(to, self.idle_after, self.running);
        put_near(to, self.elapsed_reported, self.elapsed);
        put_near(to, self.elapsed_granted, self.elapsed_reported);
        (self.first != 0).put(to);
        if self.first != 0 {
            put_near(to, self.first, self.since);
        }
        self.period_at.put(to);
        (self.ended, self.has_traffic).put(to);
        self.due.put(to);
        for moment in [self.started_at, self.stopped_at] {
            (moment != 0).put(to);
            if moment != 0 {
                put_near(to, moment, self.since);
            }
        }
        put_near(to, self.traffic_after, self.idle_after);
        self.split.put(to);
        self.is_after_monitoring.put(to);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        let (line, (sequence, since)) = Stored::get(from)?;
        let reported = Stored::get(from)?;
        let granted = get_after(from, reported)?;
        let (granted_at, (elapsed, running)) = Stored::get(from)?;
        let idle_after = get_near(from, running)?;
        let elapsed_reported = get_near(from, elapsed)?;
        let elapsed_granted = get_near(from, elapsed_reported)?;
        let first = if bool::get(from)? { get_near(from, since)? } else { 0 };
        let period_at = Stored::get(from)?;
        let (ended, has_traffic) = Stored::get(from)?;
        let due = Stored::get(from)?;
        let started_at = if bool::get(from)? { get_near(from, since)? } else { 0 };
        let stopped_at = if bool::get(from)? { get_near(from, since)? } else { 0 };
        let traffic_after = get_near(from, idle_after)?;
        let split = Stored::get(from)?;
        let is_after_monitoring = Stored::get(from)?;
        Some(Self {
            line,
            sequence,
            since,
            reported,
            granted,
            granted_at,
            elapsed,
            running,
            idle_after,
            elapsed_reported,
            elapsed_granted,
            first,
            period_at,
            ended,
            has_traffic,
            due,
            started_at,
            stopped_at,
            traffic_after,
            split,
            is_after_monitoring,
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
