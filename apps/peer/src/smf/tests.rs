//! The SMF over a real socket, with a minimal UPF as its peer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use fastlane_pfcp::ie::{
    FSeid, FTeid, NodeId, OffendingIe, PdrId, RecoveryTimeStamp, ReportType, UeIpAddress,
};
use fastlane_pfcp::{Cause, Header, IeType, Message, MessageType, Writer};

use super::{Phase, Sessions, Smf, request};
use crate::tunnel::Line;

fn sessions(count: u32) -> Sessions {
    Sessions {
        count,
        gnb: IpAddr::from([10, 3, 0, 2]),
        v4: true,
        v6: false,
        first_user: None,
        access: "access".to_owned(),
        core: "internet".to_owned(),
        qfi: 9,
        rate: 1000,
        threshold: 1 << 20,
        redirect: None,
    }
}

#[test]
fn its_requests_are_right() {
    let local = IpAddr::from([192, 0, 2, 1]);
    let both = Sessions { v6: true, gnb: IpAddr::from([1; 16]), ..sessions(1) };
    let given = Sessions { first_user: Some(Ipv4Addr::new(10, 0, 0, 255)), ..sessions(1) };
    let requests = [
        request::association(1, local, 2),
        request::release(1, local),
        request::establish(1, local, &sessions(1), 0),
        request::establish(1, local, &both, 7),
        request::establish(1, IpAddr::from([1; 16]), &given, 7),
        request::modify(1, &sessions(1), 3, 9),
        request::delete(1, 9),
    ];
    for datagram in requests {
        let (message, rest) = Message::parse(&datagram).unwrap();
        assert_eq!((message.check(), rest), (Ok(()), &[][..]), "{}", message.header.message_type);
    }
}

/// Serves requests until the association is released. The first request of each type is answered
/// only when it is retransmitted. Sessions 5, 10 and so on are refused.
fn serve_upf(socket: &UdpSocket) {
    let mut seen = Vec::new();
    let mut room = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut room).unwrap();
        let (message, _) = Message::parse(&room[..length]).unwrap();
        assert_eq!(message.check(), Ok(()));
        let kind = message.header.message_type;
        if kind.is_response() {
            // The report was about the session whose SEID at the UPF is 101.
            assert!(
                kind != MessageType::SESSION_REPORT_RESPONSE || message.header.seid == Some(101)
            );
            continue;
        }
        if !seen.contains(&kind) {
            seen.push(kind);
            continue;
        }
        let ours = message.group().find::<FSeid>().unwrap().map_or(0, |seid| seid.seid);
        let header = Header {
            message_type: kind.response().unwrap(),
            seid: message.header.seid.map(|_| ours),
            ..message.header
        };
        let mut answer = Vec::new();
        Writer::new(&mut answer).message(header, |w| reply(w, kind, ours));
        socket.send_to(&answer, from).unwrap();
        if kind == MessageType::SESSION_ESTABLISHMENT_REQUEST && ours == 1 {
            ask_back(socket, from);
        }
        if kind == MessageType::ASSOCIATION_RELEASE_REQUEST {
            return;
        }
    }
}

fn ask_back(socket: &UdpSocket, to: SocketAddr) {
    let heartbeat = Header::node(MessageType::HEARTBEAT_REQUEST, 77);
    let report = Header::session(MessageType::SESSION_REPORT_REQUEST, 1, 78);
    let mut datagram = Vec::new();
    Writer::new(&mut datagram).message(heartbeat, |w| w.put(&RecoveryTimeStamp(1)));
    socket.send_to(&datagram, to).unwrap();
    datagram.clear();
    Writer::new(&mut datagram).message(report, |w| w.put(&ReportType::UPIR));
    socket.send_to(&datagram, to).unwrap();
}

fn reply(w: &mut Writer<'_>, kind: MessageType, ours: u64) {
    let here = Ipv4Addr::LOCALHOST;
    let is_establishment = kind == MessageType::SESSION_ESTABLISHMENT_REQUEST;
    if !kind.is_session() || is_establishment {
        w.put(&NodeId::V4(here));
    }
    if is_establishment && ours.is_multiple_of(5) {
        w.put(&Cause::NO_RESOURCES_AVAILABLE);
        return w.put(&OffendingIe(IeType::CREATE_PDR.0));
    }
    w.put(&Cause::REQUEST_ACCEPTED);
    if kind == MessageType::ASSOCIATION_SETUP_REQUEST {
        w.put(&RecoveryTimeStamp(1));
    }
    if is_establishment {
        w.put(&FSeid { seid: ours + 100, v4: Some(here), v6: None });
        let low = u32::try_from(ours).unwrap();
        w.group(IeType::CREATED_PDR, |w| {
            w.put(&PdrId(1));
            w.put(&FTeid { teid: low << 8, v4: Some(here), ..FTeid::default() });
            w.put(&UeIpAddress { v4: Some(Ipv4Addr::from(low)), ..UeIpAddress::default() });
        });
    }
}

#[test]
fn sessions_come_and_go_although_datagrams_are_lost() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let upf = socket.local_addr().unwrap();
    let other = thread::spawn(move || serve_upf(&socket));
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut smf = Smf::associate(local, upf, sessions(12), 4, None).unwrap();
    let report = smf.carry_out(Phase::Establish).unwrap();
    assert_eq!((report.accepted, report.refused), (10, 2));
    assert_eq!(report.fault.unwrap().cause, Cause::NO_RESOURCES_AVAILABLE);
    assert_eq!(report.fault.unwrap().offending, Some(IeType::CREATE_PDR));
    let lines: Vec<String> = smf.tunnels().map(|tunnel| Line::Tunnel(tunnel).to_string()).collect();
    assert_eq!(lines.len(), 10);
    assert_eq!(lines[0], "tunnel 0.0.0.1 127.0.0.1 0x100 0x1 9");
    assert_eq!(smf.carry_out(Phase::Modify).unwrap().accepted, 10);
    assert_eq!(smf.carry_out(Phase::Delete).unwrap().accepted, 10);
    assert_eq!(smf.tunnels().count(), 0);
    let counts = smf.release().unwrap();
    other.join().unwrap();
    assert_eq!((counts.heartbeats, counts.reports, counts.requests), (1, 1, 0));
    assert!(counts.repeated >= 5, "the first of each kind was lost: {counts:?}");
}
