//! Cost of an establishment: `cargo test -p upf --profile soak -- --ignored cost --nocapture`.

use std::time::Instant;

use super::*;

#[test]
#[ignore = "it measures: to be read, not passed"]
fn cost_of_an_establishment() {
    let sessions: u32 =
        std::env::var("SESSIONS").ok().and_then(|it| it.parse().ok()).unwrap_or(1 << 18);
    let mut world = SessionTestbed::with(serde_json::json!({ "sessions": sessions }));
    let requests = |from: u32| -> Vec<Vec<u8>> {
        let user = |number| address(Ipv4Addr::from_bits(0x0B00_0000 + number));
        (from..from + 10_000).map(|it| establishment(it, 77, &|w| usual(w, &user(it)))).collect()
    };
    for from in (0..sessions - 10_000).step_by(10_000) {
        let requests = requests(from);
        let begun = Instant::now();
        requests.iter().for_each(|request| {
            world.handle(request);
        });
        let each = begun.elapsed() / 10_000;
        if (from / 10_000).is_multiple_of(8) {
            println!("{} sessions: {each:?} for an establishment", world.sessions.len());
        }
        world.now = world.now.after(SECOND / 2);
    }
    assert_eq!(world.sessions.len(), (sessions - 10_000).div_ceil(10_000) * 10_000);
    let begun = Instant::now();
    let seids: Vec<u64> = world.sessions.iter().take(10_000).map(|it| it.seid).collect();
    println!("{:?} to read a session", begun.elapsed() / 10_000);
    let begun = Instant::now();
    world.restart();
    println!("{:?} for another process to go on", begun.elapsed());
    let begun = Instant::now();
    for (number, seid) in seids.iter().enumerate() {
        let request = modification((1 << 23) + number as u32, *seid, &|w| {
            w.group(IeType::UPDATE_FAR, |w| {
                w.put(&ie::FarId(2));
                w.put(&ie::ApplyAction::BUFF);
            });
        });
        world.handle(&request);
    }
    println!("{:?} for a modification", begun.elapsed() / 10_000);
    let begun = Instant::now();
    for (number, seid) in seids.iter().enumerate() {
        world.handle(&deletion((1 << 22) + number as u32, *seid));
    }
    println!("{:?} for a deletion", begun.elapsed() / 10_000);
}
