//! Drop reasons and other outcomes of packets, one number each, counted per lane.

/// Defines the drop reasons with their names.
macro_rules! causes {
    ($($(#[$meta:meta])* $variant:ident = $name:literal,)*) => {
        /// Outcome of a packet, in most cases the reason why it was dropped (compare
        /// `skb_drop_reason` of Linux).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$meta])* $variant,)* }

        /// All reasons by number.
        pub const DROP_REASONS: &[DropReason] = &[$(DropReason::$variant,)*];

        impl DropReason {
            /// Returns true if it counts something done in addition, and not the outcome of a
            /// received packet. Every received packet has exactly one outcome.
            #[must_use]
            pub const fn is_additional(self) -> bool {
                matches!(
                    self,
                    Self::ErrorIndicationSent
                        | Self::ErrorIndicationSuppressed
                        | Self::EndMarkerSent
                        | Self::ExtensionNotification
                        | Self::IcmpSent
                        | Self::IcmpSuppressed
                        | Self::Duplicated
                        | Self::NotDuplicated
                        | Self::UserToUser
                        | Self::Fragmented
                        | Self::HoldDiscarded
                        | Self::HoldLost
                        | Self::RedirectSent
                        | Self::RedirectSuppressed
                        | Self::Reassembled
                        | Self::ReassemblyTimeout
                        | Self::ReassemblyNoRoom
                        | Self::ReassemblyRefused
                        | Self::IcmpNoSource
                        | Self::NatMappingMade
                        | Self::FromControl
                        | Self::FromControlDropped
                )
            }

            /// Returns true if packets of users are lost by it.
            #[must_use]
            pub const fn is_drop(self) -> bool {
                let is_loss_afterwards = matches!(
                    self,
                    Self::HoldDiscarded | Self::HoldLost | Self::FromControlDropped
                );
                let is_other = matches!(
                    self,
                    Self::ForwardedUplink
                        | Self::ForwardedDownlink
                        | Self::ForwardedByLinux
                        | Self::NotOurs
                        | Self::Held
                        | Self::OuterFragment
                        | Self::EchoAnswered
                        | Self::EchoResponse
                        | Self::EchoSuppressed
                        | Self::ErrorIndicationReceived
                        | Self::ErrorIndicationIgnored
                        | Self::EndMarkerReceived
                        | Self::ToControl
                );
                is_loss_afterwards || !is_other && !self.is_additional()
            }

            /// Returns the name in metrics and `upf trace`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

/// Entry behind all reasons: packets that a lane holds now, and packets lost with lanes that held
/// them.
pub const HOLDING: u32 = DROP_REASONS.len() as u32;
/// Entry behind it: the generation of the configuration that a lane works with.
pub const CONFIGURED: u32 = HOLDING + 1;
/// Entries of the table of drop reasons.
pub const ENTRIES: usize = DROP_REASONS.len() + 2;

causes! {
    /// Uplink packet forwarded.
    ForwardedUplink = "forwarded_uplink",
    /// Downlink packet forwarded.
    ForwardedDownlink = "forwarded_downlink",
    /// Not claimed by the UPF: passed to Linux.
    NotOurs = "not_ours",
    /// Held until the control plane function decides.
    Held = "held",
    /// A GTP-U or IP header is truncated or invalid.
    Malformed = "malformed",
    /// GTP version or protocol type other than GTP-U version 1.
    GtpVersion = "gtp_version",
    /// GTP-U message that is not for a UPF.
    GtpMessage = "gtp_message",
    /// Extension header that requires comprehension and is not supported.
    GtpExtension = "gtp_extension",
    /// No session has this tunnel.
    UnknownTunnel = "unknown_tunnel",
    /// Address of a UE pool that no session has.
    UnknownUser = "unknown_user",
    /// No PDR matches.
    NoRule = "no_rule",
    /// The source is not the UE's address.
    ForeignSource = "foreign_source",
    /// Dropped by the FAR.
    ActionDrop = "action_drop",
    /// The gate is closed.
    GateClosed = "gate_closed",
    /// Above the maximum bit rate.
    RateExceeded = "rate_exceeded",
    /// The quota is used up.
    QuotaExhausted = "quota_exhausted",
    /// Above the limit of held packets or of their time.
    HoldLimit = "hold_limit",
    /// Held packets discarded at the request of the control plane function.
    HoldDiscarded = "hold_discarded",
    /// Held packets lost when a fast path process ended, counted by its successor.
    HoldLost = "hold_lost",
    /// TTL or hop limit expired.
    TimeToLive = "time_to_live",
    /// Longer than the path MTU, and not to be fragmented.
    TooLong = "too_long",
    /// Fragment whose first one was not seen.
    FragmentUnknown = "fragment_unknown",
    /// Fragments of outer packets, taken for their reassembly. The last one to arrive is counted as
    /// the packet that it completes.
    OuterFragment = "outer_fragment",
    /// No route in Linux.
    NoRoute = "no_route",
    /// The egress interface is down or has no carrier.
    LinkDown = "link_down",
    /// The neighbour is not resolved yet.
    NoNeighbour = "no_neighbour",
    /// Forwarding loop: a local tunnel endpoint, another route back to this UPF, or rules that
    /// forward a packet between UEs to a UE again.
    Loop = "loop",
    /// Echo requests answered.
    EchoAnswered = "echo_answered",
    /// Echo responses received.
    EchoResponse = "echo_response",
    /// Error indications sent.
    ErrorIndicationSent = "error_indication_sent",
    /// Error indications suppressed by the rate limit or shortly after the start.
    ErrorIndicationSuppressed = "error_indication_suppressed",
    /// Error indications received.
    ErrorIndicationReceived = "error_indication_received",
    /// Error indications ignored as implausible.
    ErrorIndicationIgnored = "error_indication_ignored",
    /// End markers sent.
    EndMarkerSent = "end_marker_sent",
    /// End markers received.
    EndMarkerReceived = "end_marker_received",
    /// Notifications of the supported extension headers sent.
    ExtensionNotification = "extension_notification",
    /// ICMP errors sent to UEs and to the network.
    IcmpSent = "icmp_sent",
    /// ICMP errors suppressed by the rate limit.
    IcmpSuppressed = "icmp_suppressed",
    /// GTP-U to a local address on an interface that does not have it.
    WrongInterface = "wrong_interface",
    /// The outer header has a congestion mark that the inner one cannot carry (RFC 6040 clause
    /// 4.2).
    Congested = "congested",
    /// Packet between UEs without a port for them.
    NoHairpin = "no_hairpin",
    /// Redirected by the control plane function: dropped, and answered if it is an HTTP request.
    Redirected = "redirected",
    /// Uplink packet that Linux forwards, because it resolves the neighbour.
    ForwardedByLinux = "forwarded_by_linux",
    /// Echo requests not answered because of the rate limit.
    EchoSuppressed = "echo_suppressed",
    /// Fragments made of packets that were too long.
    Fragmented = "fragmented",
    /// No free frame for a packet of this UPF.
    NoFrame = "no_frame",
    /// Copies sent (DUPL).
    Duplicated = "duplicated",
    /// Packets between UEs.
    UserToUser = "user_to_user",
    /// Copies (DUPL) not sent: no route, no frame, or too long.
    NotDuplicated = "not_duplicated",
    /// HTTP redirect responses sent.
    RedirectSent = "redirect_sent",
    /// HTTP redirect responses suppressed: rate limit, or no path to the UE.
    RedirectSuppressed = "redirect_suppressed",
    /// Fragment of an outer packet that is malformed, overlaps another one, or belongs to such a
    /// packet.
    OuterFragmentRefused = "outer_fragment_refused",
    /// Outer packets reassembled.
    Reassembled = "reassembled",
    /// Outer packets given up because fragments did not arrive in time.
    ReassemblyTimeout = "reassembly_timeout",
    /// Outer packets given up to make room for newer ones.
    ReassemblyNoRoom = "reassembly_no_room",
    /// Outer packets refused: fragments that overlap or are malformed, too long for a frame.
    ReassemblyRefused = "reassembly_refused",
    /// ICMP errors not sent because N6 has no address of their family.
    IcmpNoSource = "icmp_no_source",
    /// Packet from the data network to an external port that no user has, or past NAT to a user's
    /// address; ICMP error of a user about no packet that was translated.
    NatNoMapping = "nat_no_mapping",
    /// Packet of a user without a block of external ports, or from another address than the UE's.
    NatNoBlock = "nat_no_block",
    /// All external ports of the user that the packet could get are in use.
    NatPortsExhausted = "nat_ports_exhausted",
    /// Protocol, or kind of ICMP message, that NAT does not translate.
    NatProtocol = "nat_protocol",
    /// NAT mappings made.
    NatMappingMade = "nat_mapping_made",
    /// Handed to the slow path, which sends it to the control plane function (N4-u).
    ToControl = "to_control",
    /// Packet for the control plane function that the slow path could not take: above the rate, or
    /// its messages are full.
    ToControlBusy = "to_control_busy",
    /// Packets of control plane functions that the slow path handed to a lane, sent.
    FromControl = "from_control",
    /// Packets of control plane functions that the slow path handed to a lane, dropped: the rules
    /// stop them, or their tunnel is unreachable.
    FromControlDropped = "from_control_dropped",
}
