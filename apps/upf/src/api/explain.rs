//! Dry run: the decision of the published rules about a packet, without charging it.

use fastlane::table::{ArrayWriter, EntryId, Spec, State};

use crate::api::view::DryRun;
use crate::datapath::classify::{Action, Classifier, PacketFields};
use crate::rules::layout::counter_slots::WORDS;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Block;
use crate::rules::publish::Published;
use crate::session::Session;
use crate::time::Now;

/// Decides about a packet as a lane would, on a copy of the session's counter slots. `None` if the
/// session is not published, or memory is insufficient.
pub(super) fn dry_run(
    published: &Published,
    session: &Session,
    fields: &PacketFields,
) -> Option<DryRun> {
    let rules = published.rules(session.id)?;
    let tables = published.tables();
    // Only the pages of the session's slots are touched.
    let memory = Spec::state::<WORDS>("peek", tables.state.capacity(), 0).create().ok()?;
    let state = State::<WORDS>::attach(&memory).ok()?.lane(0);
    let lines = session.urrs.iter().map(|urr| urr.progress.line);
    let lines = lines.chain(session.qers.iter().map(|qer| qer.line)).chain([session.id.0]);
    for line in lines.map(EntryId) {
        for (word, value) in tables.state.read(line).into_iter().enumerate() {
            state.at(line).set(word, value);
        }
    }
    let blocks: &ArrayWriter<Block> = &tables.blocks;
    let now = Now::read().monotonic;
    let state = &state;
    let classifier = Classifier { rules, session: session.id, blocks, state, now };
    let decision = classifier.decide(fields);
    // A packet that would leave must pass meters and quotas, too.
    let fate = match decision.action {
        Action::Forward(path) if path.redirects(decision.direction, fields) => {
            Action::Drop(DropReason::Redirected)
        }
        Action::Forward(_) => {
            classifier.passes(decision.charge).refused.map_or(decision.action, Action::Drop)
        }
        fate => fate,
    };
    let (fate, cause) = match fate {
        Action::Forward(_) => ("forward", None),
        Action::Hold(_) => ("hold", None),
        Action::Drop(cause) => ("drop", Some(cause)),
    };
    Some(DryRun { pdr: decision.pdr, fate, cause })
}
