//! A user's pings and downloads cross a real base station and the real UPF, as the examples in
//! `apps/upf/config` configure it: what differs between them is the driver.

use fastlane_tests::{Page, Process, eventually, serve};

mod live_flows;
mod nat;
mod nat_upgrade;
mod path_mtu;
mod planes;
mod site;

use site::{Links, Site};

/// Size of a download in octets.
const OCTETS: usize = 1 << 20;
const USERS: usize = 3;

/// Establishes sessions. Returns the SMF and its lines about each UE address, which a gNB reads.
fn sessions(site: &Site, users: usize, more: &[&str]) -> (Process, Vec<String>) {
    let smf = site.smf(users, more);
    let lines = if more.contains(&"both") { 2 * users } else { users };
    eventually("all sessions are set up", || smf.stdout().lines().count() == lines);
    let lines = smf.stdout().lines().map(str::to_owned).collect();
    (smf, lines)
}

/// Returns a counter of `upf_packets_total`.
fn count(metrics: &str, cause: &str) -> u64 {
    let name = format!("upf_packets_total{{cause=\"{cause}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.expect("the cause is in the metrics").parse().expect("a number")
}

/// Establishes sessions, pings from one UE, downloads to another and checks the counters.
fn crosses(links: Links, example: &'static str, wrapper: &[&str]) {
    let Some(site) = Site::on(links, example) else { return };
    let upf = site.start(wrapper);
    let (smf, lines) = sessions(&site, USERS, &[]);
    let gnb = site.gnb(&lines);
    let users: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    let access = site.access();
    // The first packets have Linux find the neighbours out; and a memif peer or a bridge has only
    // just come, so that links come up and the UPF hears of them.
    eventually("the data network answers", || access.ping(&["-I", users[0], site::SERVER]));
    let ready = site.ask("/metrics");
    access.assert_pings(50, &["-I", users[0], site::SERVER]);

    let page = Page::new(OCTETS);
    let (url, server) = serve(site.network(), site::SERVER, page.0.clone());
    let fetched = site.file("fetched");
    let to = fetched.to_str().expect("a path in ASCII");
    let words = ["--silent", "--show-error", "--max-time", "60", "--interface", users[1]];
    access.run(&[&["curl"], &words[..], &["--output", to, &url]].concat());
    server.join().expect("it does not panic").expect("the page is sent");
    assert!(std::fs::read(fetched).expect("the page") == page.0, "{example}: the page is intact");

    let metrics = site.ask("/metrics");
    for line in ["upf_table_entries{table=\"users\"} 3", "upf_rules{kind=\"pdr\"} 6"] {
        assert!(metrics.lines().any(|it| it == line), "{example}: no {line} in {metrics}");
    }
    let message =
        site.trace(&[users[2], "--to", site::SERVER, "--protocol", "tcp", "--port", "80"]);
    for part in ["uplink: tcp from ", "PDR 1 ", "forward to core", "PDR 2 ", "forward to access"] {
        assert!(message.contains(part), "{example}: no {part} in {message}");
    }
    let message = site.trace(&[users[2], "--to", site::SERVER, "--qfi", "63"]);
    assert!(message.contains("drop: no_rule"), "{example}: {message}");
    assert_eq!(site.ask("/metrics").matches("{cause=\"no_rule\"} 0").count(), 2, "nothing counts");
    assert!(count(&metrics, "forwarded_uplink") >= 51, "{metrics}");
    // So many packets the page has at least.
    assert!(count(&metrics, "forwarded_downlink") >= 51 + OCTETS as u64 / 1400, "{metrics}");
    for cause in ["no_rule", "unknown_user", "unknown_tunnel", "malformed"] {
        assert_eq!(count(&metrics, cause), 0, "{example}: {cause}");
    }
    for cause in ["no_route", "link_down", "no_neighbour"] {
        let before = count(&ready, cause);
        assert_eq!(count(&metrics, cause), before, "{example}: {cause}: ways stay");
    }
    let ended = smf.stop();
    assert!(ended.status.success(), "{}", ended.stderr);
    let ended = gnb.stop();
    assert!(ended.status.success(), "{}", ended.stderr);
    upf.stop();
    site.end();
}

/// HTTP redirection: the UPF itself answers the clients of UEs, also many at a time.
#[test]
fn a_client_of_the_web_is_redirected() {
    const TO: &str = "http://top-up.example/?why=quota";
    let Some(site) = Site::new("af-packet") else { return };
    let upf = site.start(&[]);
    let (smf, lines) = sessions(&site, USERS, &["--redirect", TO]);
    let gnb = site.gnb(&lines);
    let users = lines.iter().filter_map(|line| line.split(' ').nth(1));
    let url = format!("http://{}/[1-20]", site::SERVER);
    let mut ready = None;
    for user in users {
        let words = ["curl", "--silent", "--show-error", "--max-time", "20", "--interface", user];
        let ways = ["--write-out", "%{http_code} %{redirect_url}\\n", "--parallel", &url];
        let mut message = String::new();
        // The first packets have Linux find the neighbours out.
        eventually("all are answered", || {
            let done = site.access().attempt(&[&words[..], &ways].concat());
            message = String::from_utf8_lossy(&done.stdout).into_owned();
            done.status.success()
        });
        assert_eq!(message, format!("302 {TO}\n").repeat(20), "{user}");
        ready.get_or_insert_with(|| site.ask("/metrics"));
    }
    let user = lines[0].split(' ').nth(1).expect("an address");
    let message = site.trace(&[user, "--to", site::SERVER, "--protocol", "tcp", "--port", "80"]);
    assert!(message.contains("drop: redirected"), "{message}");
    let metrics = site.ask("/metrics");
    // Of each request: SYN, the request, FIN.
    assert!(count(&metrics, "redirect_sent") >= 3 * 3 * 20, "{metrics}");
    assert!(count(&metrics, "redirected") >= count(&metrics, "redirect_sent"), "{metrics}");
    let suppressed = |metrics: &str| count(metrics, "redirect_suppressed");
    assert_eq!(ready.as_deref().map(suppressed), Some(suppressed(&metrics)), "ways stay");
    for cause in ["forwarded_uplink", "forwarded_downlink"] {
        assert_eq!(count(&metrics, cause), 0, "{cause}");
    }
    assert!(smf.stop().status.success());
    assert!(gnb.stop().status.success());
    upf.stop();
    site.end();
}

#[test]
fn on_af_xdp() {
    crosses(Links::Separate, "af-xdp", &[]);
}

/// BPF needs no raised limit, so a process without CAP_SYS_RESOURCE starts.
#[test]
fn on_af_xdp_without_the_right_to_raise_limits() {
    let lost = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"];
    crosses(Links::Separate, "af-xdp", &lost);
}

#[test]
fn on_af_packet() {
    crosses(Links::Separate, "af-packet", &[]);
}

#[test]
fn on_vlans_over_af_xdp() {
    crosses(Links::Vlans, "af-xdp", &[]);
}

#[test]
fn on_vlans_over_af_packet() {
    crosses(Links::Vlans, "af-packet", &[]);
}

#[test]
fn on_vlans_over_memif() {
    crosses(Links::Vlans, "memif", &[]);
}

#[test]
fn on_vlans_over_dpdk() {
    crosses(Links::Vlans, "dpdk", &[]);
}

#[test]
fn on_taps_behind_a_bridge() {
    crosses(Links::Separate, "tap", &[]);
}

#[test]
fn on_memif() {
    crosses(Links::Separate, "memif", &[]);
}

#[test]
fn on_dpdk() {
    crosses(Links::Separate, "dpdk", &[]);
}

#[test]
fn on_a_socket_and_a_tap() {
    crosses(Links::Separate, "socket", &[]);
}
