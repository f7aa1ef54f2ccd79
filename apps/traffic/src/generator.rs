//! Sender of a lane: makes packets at the configured rate and within the window.

use std::sync::Arc;

use fastlane::{Packet, PortId, Turn, Verdict, now};

use crate::answers::Answers;
use crate::pace::Pace;
use crate::payload::Mark;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::tally::Tally;

/// Time at which a generator must be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSend {
    /// In the next turn.
    Now,
    /// At this time, in nanoseconds of `CLOCK_MONOTONIC`, or when something has come back.
    At(u64),
    /// No further call: the last packet has left.
    Done,
}

/// Sending lane: its part of the load and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Index among the senders.
    pub index: usize,
    /// Number of senders.
    pub count: usize,
    /// Port that it sends to.
    pub port: PortId,
}

impl Sender {
    /// Returns this sender's part of `whole`, which is divided among all senders.
    fn share_of(self, whole: u64) -> u64 {
        let senders = self.count as u64;
        whole / senders + u64::from((self.index as u64) < whole % senders)
    }
}

/// A flow that this lane sends.
#[derive(Clone, Copy, Debug)]
struct Flow {
    number: u16,
    phase: u16,
    sequence: u32,
}

/// Makes the packets of one lane, in bursts as the settings allow.
#[derive(Debug)]
pub struct Generator {
    plan: Arc<Plan>,
    port: PortId,
    run: u16,
    flows: Box<[Flow]>,
    next_flow: usize,
    burst: u16,
    rate: u64,
    pace: Option<Pace>,
    answers: Option<Answers>,
    /// True if this lane is the only sender. With several senders another lane may receive the
    /// frames of this one, so it cannot sleep until they come back.
    alone: bool,
    left: u64,
    duration: u64,
    ends_at: u64,
    warm_up_packets: u64,
    warm_up_share: u64,
    warm_up_ends_at: u64,
    begun: bool,
    /// Packets handed to the port.
    pub sent: Tally,
    /// Number of packets not sent because they are longer than the lane's frames.
    pub too_long: u64,
}

impl Generator {
    /// Creates the generator of `sender` for its part of the load in `settings`.
    #[must_use]
    pub fn new(
        settings: &Settings,
        plan: Arc<Plan>,
        progress: &Arc<Progress>,
        run: u16,
        sender: Sender,
    ) -> Self {
        let period = plan.period();
        // Flows begin at different lengths, so the mix holds over the flows too.
        let flow = |number: usize| Flow {
            number: number as u16,
            phase: (number / sender.count % period) as u16,
            sequence: 0,
        };
        let flows = (sender.index..plan.flows()).step_by(sender.count).map(flow).collect();
        let answers = (settings.outstanding_packets > 0).then(|| {
            let limit = sender.share_of(settings.outstanding_packets);
            let timeout = settings.answer_timeout_ms.saturating_mul(1_000_000);
            Answers::new(Arc::clone(progress), sender.index, limit, timeout)
        });
        let count = settings.count_packets;
        let left = if count > 0 { sender.share_of(count) } else { u64::MAX };
        let percent = u64::from(settings.warm_up_percent);
        let warm_up = |whole: u64| (u128::from(whole) * u128::from(percent) / 100) as u64;
        let duration = settings.duration_ms.saturating_mul(1_000_000);
        Self {
            plan,
            port: sender.port,
            run,
            flows,
            next_flow: 0,
            burst: settings.burst_packets,
            rate: sender.share_of(settings.rate_packets_per_second),
            pace: None,
            answers,
            alone: sender.count == 1,
            left,
            duration,
            ends_at: u64::MAX,
            // With both limits set the run ends at the first of them; latency counts after the
            // warm-up share of either.
            warm_up_packets: if percent > 0 && count == 0 { u64::MAX } else { warm_up(left) },
            warm_up_share: warm_up(duration),
            warm_up_ends_at: u64::MAX,
            begun: false,
            sent: Tally::default(),
            too_long: 0,
        }
    }

    /// Sends the packets that are due in this turn.
    pub fn turn(&mut self, turn: &mut Turn) -> NextSend {
        let now = turn.now();
        if !self.begun {
            self.begin(now);
        }
        if self.left == 0 || now >= self.ends_at {
            return NextSend::Done;
        }
        let count = self.due(now).min(turn.new_packets_left() as u64);
        if count > 0 {
            self.send(count, turn);
        }
        self.next(now)
    }

    /// Returns the number of packets that were outstanding for too long.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.answers.as_ref().map_or(0, Answers::given_up)
    }

    /// Returns the number of packets that were due but not sent, because the lane was late or the
    /// window was full.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.pace.as_ref().map_or(0, Pace::skipped)
    }

    fn begin(&mut self, now: u64) {
        self.begun = true;
        if self.duration > 0 {
            self.ends_at = now.saturating_add(self.duration);
            self.warm_up_ends_at = now.saturating_add(self.warm_up_share);
        }
        if self.rate > 0 {
            self.pace = Some(Pace::new(self.rate, self.burst, now));
        }
    }

    #[inline]
    fn due(&mut self, now: u64) -> u64 {
        let mut count = u64::from(self.burst).min(self.left);
        if let Some(pace) = &mut self.pace {
            count = count.min(pace.due(now));
        }
        if let Some(answers) = &mut self.answers {
            count = count.min(answers.room(self.sent.packets, now));
        }
        count
    }

    /// Sends `count` packets. They share one time stamp.
    fn send(&mut self, count: u64, turn: &mut Turn) {
        let now = now();
        let mut made = 0;
        for _ in 0..count {
            let Some(packet) = turn.new_packet(self.port) else { break };
            self.fill(packet, now);
            self.advance();
            made += 1;
        }
        self.left = if self.left == u64::MAX { u64::MAX } else { self.left - made };
        if let Some(pace) = &mut self.pace {
            pace.spend(made);
        }
        if let Some(answers) = &mut self.answers {
            answers.sent(now);
        }
    }

    #[inline]
    fn fill(&mut self, packet: &mut Packet, now: u64) {
        let measured = self.sent.packets >= self.warm_up_packets || now >= self.warm_up_ends_at;
        let flow = &mut self.flows[self.next_flow];
        let template = self.plan.template(flow.number.into(), flow.phase.into());
        flow.phase += 1;
        if usize::from(flow.phase) == self.plan.period() {
            flow.phase = 0;
        }
        let length = self.plan.length(template);
        let Some(frame) = packet.append(length) else {
            packet.set_verdict(Verdict::Drop);
            self.too_long += 1;
            return;
        };
        let (run, sequence) = (self.run, flow.sequence);
        let mark = Mark { run, flow: flow.number, sequence, sent: now, measured };
        self.plan.write(template, mark, frame);
        flow.sequence = sequence.wrapping_add(1);
        self.sent.add(length, now);
    }

    #[inline]
    fn advance(&mut self) {
        self.next_flow += 1;
        if self.next_flow == self.flows.len() {
            self.next_flow = 0;
        }
    }

    fn next(&mut self, now: u64) -> NextSend {
        if self.left == 0 {
            return NextSend::Done;
        }
        let full = match &mut self.answers {
            Some(answers) => answers.room(self.sent.packets, now) == 0,
            None => false,
        };
        let due = match (&self.answers, &self.pace) {
            (Some(_), _) if full && !self.alone => return NextSend::Now,
            (Some(answers), _) if full => answers.deadline(),
            (_, Some(pace)) => pace.next(),
            _ => return NextSend::Now,
        };
        NextSend::At(due.min(self.ends_at))
    }
}
