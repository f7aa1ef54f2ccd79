//! Dry run: the decision of the published rules about a packet, without charging it.

use fastlane::table::{ArrayWriter, EntryId, Spec, State};

use crate::api::view::Judged;
use crate::datapath::decide::{Fate, Subject, decide, passes};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::Block;
use crate::rules::layout::state::WORDS;
use crate::rules::publish::Published;
use crate::session::Session;
use crate::time::Now;

/// Decides about a packet as a lane would, on a copy of the session's counter slots. `None` if the
/// session is not published, or memory is insufficient.
pub(super) fn judge(published: &Published, session: &Session, subject: &Subject) -> Option<Judged> {
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
    let decision = decide(rules, &blocks, subject, session.id, &state, now);
    // A packet that would leave must pass meters and quotas, too.
    let fate = match decision.fate {
        Fate::Forward(path) if path.redirects(decision.direction, subject) => {
            Fate::Drop(Cause::Redirected)
        }
        Fate::Forward(_) => passes(rules, &blocks, decision.charge, session.id, &state, now)
            .refused
            .map_or(decision.fate, Fate::Drop),
        fate => fate,
    };
    let (fate, cause) = match fate {
        Fate::Forward(_) => ("forward", None),
        Fate::Hold(_) => ("hold", None),
        Fate::Drop(cause) => ("drop", Some(cause)),
    };
    Some(Judged { pdr: decision.pdr, fate, cause })
}
