use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::metrics::Snapshot;
use super::view::{
    CapturePlan, CapturedSession, DrainView, DryRun, HealthView, OutcomeRate, Readiness, TopRow,
    TopView, TraceSubject,
};
use super::{
    NodeView, QueryReceiver, RouteSource, answer, client, drain_client, reload_client, serve,
};
use crate::api::client::{Request, ask};
use crate::api::view::ExternalView;
use crate::datapath::classify::PacketFields;
use crate::pfcp::ReloadReport;
use crate::pfcp::associations::Association;
use crate::pfcp::node::DrainStatus;
use crate::session::{CpFSeid, InstanceId, Session, SessionIndex};

mod traced_routes;

/// Control plane with sessions only.
struct BackendView(Vec<Session>);

impl NodeView for BackendView {
    fn associations(&self) -> Vec<&Association> {
        vec![]
    }

    fn sessions_of(&self, _: u16) -> usize {
        0
    }

    fn sessions(&self) -> usize {
        self.0.len()
    }

    fn after(&self, place: Option<SessionIndex>, limit: usize) -> Vec<Session> {
        let beyond = |it: &&Session| place.is_none_or(|place| it.id > place);
        self.0.iter().filter(beyond).take(limit).cloned().collect()
    }

    fn session(&self, seid: u64) -> Option<Session> {
        self.0.iter().find(|it| it.seid == seid).cloned()
    }

    fn find(&self, who: &TraceSubject, limit: usize) -> Vec<Session> {
        let TraceSubject::Supi(wanted) = who else {
            return Vec::new();
        };
        let has_supi = |session: &&Session| session.supi.as_ref() == Some(wanted);
        self.0.iter().filter(has_supi).take(limit).cloned().collect()
    }

    fn counted(&self, line: u32) -> [u64; 4] {
        [u64::from(line), 0, 0, 0]
    }

    fn external(&self, _: SessionIndex) -> Option<ExternalView> {
        None
    }

    fn instance(&self, _: InstanceId) -> Option<&str> {
        None
    }

    fn arrival(&self, _: bool) -> Option<InstanceId> {
        Some(0)
    }

    fn route_source(&self, instance: Option<InstanceId>, is_n6: bool) -> RouteSource {
        match (instance, is_n6) {
            (_, true) => RouteSource::Fixed("02:00:00:00:00:02".to_owned(), "n6".to_owned()),
            (instance, false) => RouteSource::Table(instance.map(u32::from)),
        }
    }

    fn dry_run(&self, _: &Session, _: &PacketFields) -> Option<DryRun> {
        None
    }

    fn top(&self) -> TopView {
        let row = |session: &Session| TopRow::of(session, [1000, 10, 500, 5]);
        let outcome = |name: &str, is_drop, packets| OutcomeRate {
            outcome: name.to_owned(),
            is_drop,
            packets_per_s: packets / 10,
            octets_per_s: packets * 10,
            packets,
        };
        TopView {
            elapsed_s: 1.0,
            total: self.0.len(),
            active: self.0.len(),
            sessions: self.0.iter().map(row).collect(),
            slices: vec![],
            outcomes: vec![
                outcome("forwarded_uplink", false, 900),
                outcome("gate_closed", true, 70),
                outcome("no_rule", true, 0),
            ],
        }
    }

    fn capture_plan(&self, sessions: &[Session]) -> CapturePlan {
        let captured = |session: &Session| CapturedSession {
            seid: format!("{:#x}", session.seid),
            supi: session.supi.clone(),
            tunnels: vec![],
            prefixes: vec![],
            external: None,
        };
        CapturePlan { sessions: sessions.iter().map(captured).collect(), ..CapturePlan::default() }
    }

    fn drain(&self) -> DrainView {
        DrainStatus::default().into()
    }

    fn reload(&self) -> ReloadReport {
        ReloadReport {
            is_in_force: false,
            refusals: vec!["no: why".to_owned()],
            ..Default::default()
        }
    }

    fn numbers(&self) -> Snapshot {
        let causes = vec![(crate::rules::layout::drop_reason::DropReason::GateClosed, [7, 700])];
        Snapshot {
            sessions: self.0.len(),
            causes,
            is_fast_alive: true,
            rules: [4, 3, 2, 1, 0],
            by_association: vec![("smf \"1\"\n".to_owned(), 3)],
            tables: vec![("users", 5, 70)],
            drain: DrainStatus {
                is_draining: true,
                left: Some(12_500_000_000),
                ..DrainStatus::default()
            },
            ..Snapshot::default()
        }
    }
}

fn session(place: u32) -> Session {
    Session {
        id: SessionIndex(place),
        seid: 1 << 32 | u64::from(place),
        cp_fseid: CpFSeid { seid: 7, address: "192.0.2.9".parse().unwrap() },
        peer: 0,
        version: 1,
        generation: 0,
        discarded: 0,
        is_deleted: false,
        established: 0,
        pdn_type: 1,
        supi: Some(format!("00101{place:010}")),
        network: None,
        s_nssai: None,
        inactivity_s: None,
        fq_csids: vec![],
        pdrs: vec![],
        fars: vec![],
        qers: vec![],
        urrs: vec![],
        bars: vec![],
        reporting: Default::default(),
    }
}

/// Runs `test` while a thread answers queries.
fn with(sessions: u32, test: impl FnOnce(SocketAddr)) {
    let (api, receiver) = serve("127.0.0.1:0".parse().unwrap()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let loops = std::thread::spawn(move || {
        let known = BackendView((0..sessions).map(session).collect());
        while !stopped.load(Ordering::Relaxed) {
            serve_one(&receiver, &known);
        }
    });
    test(api.address());
    stop.store(true, Ordering::Relaxed);
    loops.join().unwrap();
}

fn serve_one(receiver: &QueryReceiver, known: &BackendView) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let wait = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    let _ = poll(&mut [PollFd::new(receiver, PollFlags::IN)], Some(&wait));
    while let Some(query) = receiver.next() {
        let _ = query.answer.send(answer(&query.query, known));
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn pages_come_one_after_the_other_and_end() {
    with(2345, |address| {
        let json = ask(address, &Request::Sessions(usize::MAX), true).unwrap();
        let page: super::view::Page = serde_json::from_str(&json).unwrap();
        assert_eq!((page.sessions.len(), page.total, page.next), (2345, 2345, None));
        assert_eq!(page.sessions[2344].seid, "0x100000928");
        assert_eq!(page.sessions[7].counted[0], 7);
        let few = ask(address, &Request::Sessions(3), false).unwrap();
        assert!(few.ends_with("3 of 2345 sessions\n"), "{few}");
    });
}

#[test]
fn what_is_not_there_and_what_is_no_question_is_said() {
    with(1, |address| {
        let detail = ask(address, &Request::Session("0x100000000".to_owned()), true).unwrap();
        assert!(detail.contains("\"place\": 0"), "{detail}");
        let error =
            ask(address, &Request::Session("0x5".to_owned()), true).unwrap_err().to_string();
        assert!(error.contains("no session has the SEID 0x5"), "{error}");
        let found =
            ask(address, &Request::Trace("imsi-001010000000000".parse().unwrap(), None), false);
        assert!(found.unwrap().starts_with("session 0x100000000 of imsi-001010000000000"));
        let error = ask(address, &Request::Trace("0x5".parse().unwrap(), None), true).unwrap_err();
        assert!(error.to_string().contains("dropped as unknown_tunnel"), "{error}");
        for wrong in ["/sessions?limit=0", "/sessions?limit=1001", "/sessions?x=1", "/trace?who=x"]
        {
            assert!(get(address, wrong).starts_with("HTTP/1.0 400"), "{wrong}");
        }
        assert!(get(address, "/nothing").starts_with("HTTP/1.0 404"));
        assert!(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
    });
}

#[test]
fn what_is_described_is_what_is_served() {
    with(0, |address| {
        let text = get(address, "/openapi.json");
        let document: serde_json::Value =
            serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        let described = document["paths"].as_object().unwrap();
        // The described paths are those that are served, except the description itself.
        let served = super::server::routes().into_iter().map(|(path, _)| path);
        let served: BTreeSet<&str> = served.filter(|path| *path != "/openapi.json").collect();
        assert_eq!(described.keys().map(String::as_str).collect::<BTreeSet<_>>(), served);
        assert!(document["components"]["schemas"]["SessionView"].is_object());
        for (path, methods) in described {
            let of: Vec<&String> = methods.as_object().unwrap().keys().collect();
            let allowed: &[&str] = match path.as_str() {
                "/drain" => &["delete", "get", "put"],
                "/reload" => &["get", "put"],
                _ => &["get"],
            };
            assert_eq!(of, allowed, "{path}: read only");
            let path = path.replace("{seid}", "0x5");
            let text = get(address, &path);
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(!body.is_empty(), "{path} answers with something: {head}");
            // The status is one of those described.
            let status = head.split_whitespace().nth(1).unwrap();
            assert!(methods["get"]["responses"].get(status).is_some(), "{path}: {status}");
            let refused = exchange(address, &format!("POST {path} HTTP/1.0\r\n\r\n"));
            assert!(refused.starts_with("HTTP/1.0 405"), "{path}: {refused}");
        }
        let mut references = vec![];
        gather_references(&document, &mut references);
        assert!(references.len() > 10, "{references:?}");
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    });
}

/// Collects all values of `$ref` in a document.
fn gather_references(value: &serde_json::Value, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            let own = members.get("$ref").and_then(serde_json::Value::as_str);
            into.extend(own.map(str::to_owned));
            members.values().for_each(|value| gather_references(value, into));
        }
        serde_json::Value::Array(values) => {
            values.iter().for_each(|value| gather_references(value, into));
        }
        _ => {}
    }
}

#[test]
fn metrics_are_those_of_the_moment() {
    with(3, |address| {
        let text = get(address, "/metrics");
        for line in [
            "upf_sessions 3",
            "upf_fast_half_up 1",
            "upf_draining 1",
            "upf_drain_period_left_seconds 12.5",
            "upf_packets_total{cause=\"gate_closed\"} 7",
            "upf_octets_total{cause=\"gate_closed\"} 700",
            "upf_slow_half_cpu_seconds_total 0.0",
            "upf_rules{kind=\"pdr\"} 4",
            "upf_rules{kind=\"bar\"} 0",
            "upf_association_sessions{node_id=\"smf \\\"1\\\"\\n\"} 3",
            "upf_table_entries{table=\"users\"} 5",
            "upf_table_entries_most{table=\"users\"} 70",
            "upf_reports_total{kind=\"usage\"} 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}:\n{text}");
        }
    });
}

/// Checks the text format (OpenMetrics 1.0, section 4): each family is described once, before its
/// samples, which have its name; the end is marked.
#[test]
fn metrics_are_in_the_form_that_collectors_read() {
    with(1, |address| {
        let text = get(address, "/metrics");
        let (head, page) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains("content-type: application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        assert!(page.ends_with("\n# EOF\n"), "{page}");
        let (mut types, mut samples) = (std::collections::BTreeMap::new(), 0);
        let mut family = "";
        for line in page.lines().filter(|line| *line != "# EOF") {
            if let Some(described) = line.strip_prefix("# ") {
                let words: Vec<&str> = described.splitn(3, ' ').collect();
                assert!(words.len() == 3 && words[1].starts_with("upf_"), "{line}");
                family = words[1];
                if words[0] == "TYPE" {
                    assert_eq!(types.insert(words[1], words[2]), None, "{line}: once");
                }
                continue;
            }
            let (name, value) = line.rsplit_once(' ').unwrap();
            let name = name.split('{').next().unwrap();
            let expected = match types[family] {
                "counter" => format!("{family}_total"),
                _ => family.to_owned(),
            };
            assert_eq!(name, expected, "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            samples += 1;
        }
        assert!(types.len() > 20 && samples > 20, "{page}");
    });
}

#[test]
fn a_drain_is_put_and_deleted_and_its_period_has_a_limit() {
    with(1, |address| {
        let state = "\"state\":\"serving\"";
        for request in ["GET /drain", "PUT /drain", "PUT /drain?period_s=86400", "DELETE /drain"] {
            let reply = exchange(address, &format!("{request} HTTP/1.0\r\n\r\n"));
            assert!(reply.starts_with("HTTP/1.0 200"), "{request}: {reply}");
            assert!(reply.contains(state) && reply.contains("\"period-left-s\":null"), "{reply}");
        }
        for wrong in ["PUT /drain?period_s=86401", "PUT /drain?period_s=-1", "PUT /drain?wait=1"] {
            let reply = exchange(address, &format!("{wrong} HTTP/1.0\r\n\r\n"));
            assert!(reply.starts_with("HTTP/1.0 400"), "{wrong}: {reply}");
        }
        assert_eq!(
            drain_client::undrain(address, false).unwrap(),
            "serving: 0 sessions of 0 associations\n"
        );
    });
}

#[test]
fn one_who_says_nothing_keeps_nobody_out() {
    with(1, |address| {
        let silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(get(address, "/healthz").ends_with("ok\n"));
        drop(silent);
    });
}

#[test]
fn a_reload_that_is_refused_tells_all_reasons() {
    with(1, |address| {
        for is_applied in [false, true] {
            let file = std::path::Path::new("/etc/upf & co.json");
            let refused = reload_client::reload(address, Some(file), is_applied, true);
            let text = refused.unwrap_err().to_string();
            assert_eq!(text, "nothing was changed:\n  no: why");
        }
        let answer = exchange(address, "PUT /reload?content=x HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.0 400"), "a request has no content: {answer}");
    });
}

#[test]
fn a_load_balancer_learns_the_state_and_may_accept_another_one() {
    with(1, |address| {
        let healths = ["/readyz", "/readyz?accept=no-association", "/readyz?accept=draining"];
        let statuses = healths.map(|path| {
            let text = get(address, path);
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let health: HealthView = serde_json::from_str(body).unwrap();
            assert_eq!((health.state, health.sessions), (Readiness::Draining, 1), "{body}");
            head.split_whitespace().nth(1).unwrap().to_owned()
        });
        assert_eq!(statuses, ["503", "503", "200"]);
        assert!(get(address, "/readyz?accept=x").starts_with("HTTP/1.0 400"));
    });
}

#[test]
fn the_busiest_sessions_are_as_many_as_asked_for() {
    with(1200, |address| {
        let top = |path: &str| -> TopView {
            let text = get(address, path);
            serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
        };
        assert_eq!(top("/top").sessions.len(), 100);
        let three = top("/top?limit=3");
        assert_eq!((three.sessions.len(), three.total), (3, 1200));
        assert!(three.outcomes.iter().any(|it| it.is_drop && it.outcome == "gate_closed"));
        for wrong in ["/top?limit=0", "/top?limit=1001", "/top?x=1"] {
            assert!(get(address, wrong).starts_with("HTTP/1.0 400"), "{wrong}");
        }
    });
}

#[test]
fn a_capture_is_of_a_session_that_exists() {
    with(3, |address| {
        for (who, expected) in [("0x100000002", 1), ("imsi-001010000000001", 1)] {
            let plan = client::capture_plan(address, &who.parse().unwrap()).unwrap();
            assert_eq!(plan.sessions.len(), expected, "{who}");
        }
        let error = client::capture_plan(address, &"0x5".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("there is no session of 0x5"), "{error}");
        assert!(get(address, "/capture?who=x").starts_with("HTTP/1.0 400"));
    });
}
