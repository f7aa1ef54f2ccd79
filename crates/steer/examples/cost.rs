//! Cost of the XDP program per frame, measured by the kernel's clock (BPF_PROG_TEST_RUN).
//!
//! Needs CAP_BPF and CAP_NET_ADMIN; touches no interface. No AF_XDP socket is in the table, so the
//! redirect is looked up and not found. Each figure is the lowest of several runs, because other
//! load on a shared machine can only make a program slower.

use std::net::Ipv4Addr;

use fastlane_steer::{Prefix, Program, ProgramError, ProgramName, Rule, Rules, Settings};

/// Number of runs per figure, and frames per run.
const RUNS: u32 = 15;
const FRAMES: u32 = 1_000_000;

fn main() -> Result<(), ProgramError> {
    let settings = Settings { max_length: 2048, mark: 0, reenter_ifindex: 0 };
    let mut program = Program::load(&Rules::default(), settings)?;
    let frame = gtp_u();
    println!("ns per frame: UDP/IPv4 to port 2152, only the last rule matches, or none");
    for count in [0, 1, 8, 64] {
        let (ports, prefixes) = (rules(count, true), rules(count, false));
        let none = Rules::new(ports.as_slice().iter().map(without_match).collect());
        let none = none.unwrap_or_default();
        let mut figures = [u128::MAX; 3];
        for _ in 0..RUNS {
            for (figure, rules) in figures.iter_mut().zip([&ports, &prefixes, &none]) {
                program.replace_rules(rules)?;
                let trial = program.test_run(ProgramName::Xdp, &frame, 0, FRAMES)?;
                *figure = trial.duration.as_nanos().min(*figure);
            }
        }
        let [ports, prefixes, none] = figures;
        println!("{count:3} rules: ports {ports:4}  prefixes {prefixes:4}  no match {none:4}");
    }
    Ok(())
}

/// Returns `count` rules, of which only the last matches [`gtp_u`].
fn rules(count: u16, by_port: bool) -> Rules {
    let list = (1..=count).map(|offset| match by_port {
        true => Rule { udp_port: Some((2152 + offset - count).into()), ..Rule::default() },
        false => {
            let address = Ipv4Addr::new(10, 0, (1 + count - offset) as u8, 0).into();
            Rule { destination: Some(Prefix { address, length: 24 }), ..Rule::default() }
        }
    });
    Rules::new(list.collect()).unwrap_or_default()
}

/// Returns the same rules for TCP, which [`gtp_u`] does not match.
fn without_match(rule: &Rule) -> Rule {
    Rule { tcp_port: rule.udp_port, ..Rule::default() }
}

/// Returns a frame of 64 octets to 10.0.1.1, UDP port 2152.
fn gtp_u() -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[23] = 17;
    frame[30..34].copy_from_slice(&[10, 0, 1, 1]);
    frame[36..38].copy_from_slice(&2152_u16.to_be_bytes());
    frame[42] = 0x30;
    frame
}
