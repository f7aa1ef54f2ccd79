//! Opens accounts, keeps changing them and handles events: the slow path of the stories
//! `slow_path`. Usage: `ledger_slow SESSION FIRST-PORT PORTS`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastlane::slow::{self, SlowError};

/// Interval between changes of all accounts.
const PERIOD: Duration = Duration::from_millis(1);
/// Interval between scans for events without a message.
const SCAN: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, session, first, count] = &words[..] else { return Err("three words".into()) };
    let (first, count): (u16, u16) = (first.parse()?, count.parse()?);
    let slow = slow::attach_wait(session, Duration::from_secs(30))?;
    let result = work(&slow, first..first + count);
    if slow.is_alive() { Ok(result?) } else { Ok(()) }
}

fn work(slow: &slow::SlowPath, ports: std::ops::Range<u16>) -> Result<(), SlowError> {
    let mut accounts = slow.hash_writer::<[u8; 2], [u64; 8]>("accounts")?;
    let mut revision = accounts.iter().map(|(_, found)| found.value[0]).max().unwrap_or(0);
    let mut messages = slow.messages().ok();
    let events = slow.pending("accounts").ok();
    let (mut dealt, mut looked, mut is_ready) = (BTreeMap::new(), Instant::now(), false);
    while slow.is_alive() {
        revision += 1;
        for port in ports.clone() {
            accounts.insert(&port.to_be_bytes(), &[revision; 8])?;
        }
        // Accounts that come and go: what they leave behind is used for the others.
        let passing = [0, (revision % 101) as u8];
        if !accounts.remove(&passing) {
            accounts.insert(&passing, &[revision; 8])?;
        }
        if !std::mem::replace(&mut is_ready, true) {
            eprintln!("writing, with {} accounts", accounts.len());
        }
        let message = match &mut messages {
            Some(messages) => messages.receive(PERIOD)?.is_some(),
            None => {
                std::thread::sleep(PERIOD);
                false
            }
        };
        let Some(events) = &events else { continue };
        if message || looked.elapsed() > SCAN {
            looked = Instant::now();
            events.scan(|entry, seen| {
                dealt.insert(entry, seen);
                events.done(entry, seen);
            });
            println!("{} events", dealt.values().sum::<u64>());
        }
    }
    Ok(())
}
