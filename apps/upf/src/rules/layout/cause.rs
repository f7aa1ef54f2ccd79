//! Why a packet was not forwarded, and what was done on the way: one number each, counted by lane.

/// Defines the causes with their names.
macro_rules! causes {
    ($($(#[$meta:meta])* $variant:ident = $name:literal,)*) => {
        /// What became of a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Cause { $($(#[$meta])* $variant,)* }

        /// All of them, by number.
        pub const CAUSES: &[Cause] = &[$(Cause::$variant,)*];

        impl Cause {
            /// Whether it says what was done besides, and not what became of a packet that arrived:
            /// every packet has exactly one of the others.
            #[must_use]
            pub const fn is_besides(self) -> bool {
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
                )
            }

            /// Its name in metrics and `upf trace`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

/// The entry of the causes after all of them: how many packets a lane holds now, and how many will
/// have been lost with lanes that held them.
pub const HOLDING: u32 = CAUSES.len() as u32;
/// Entries of the table of causes.
pub const ENTRIES: usize = CAUSES.len() + 1;

causes! {
    /// From the user, on its way.
    ForwardedUplink = "forwarded_uplink",
    /// To the user, on its way.
    ForwardedDownlink = "forwarded_downlink",
    /// Not ours: Linux gets it.
    NotOurs = "not_ours",
    /// Held until the control plane says where it goes.
    Held = "held",
    /// A header of GTP-U or IP is cut off or says what cannot be.
    Malformed = "malformed",
    /// A GTP version or protocol type that is not GTP-U version 1.
    GtpVersion = "gtp_version",
    /// A message of GTP-U that is not for a UPF.
    GtpMessage = "gtp_message",
    /// An extension header that must be understood and is not.
    GtpExtension = "gtp_extension",
    /// No session has this tunnel.
    UnknownTunnel = "unknown_tunnel",
    /// An address of a pool that no session has.
    UnknownUser = "unknown_user",
    /// No PDR matches.
    NoRule = "no_rule",
    /// The source is not the user's address.
    ForeignSource = "foreign_source",
    /// The FAR says drop.
    ActionDrop = "action_drop",
    /// The gate is closed.
    GateClosed = "gate_closed",
    /// More than the maximum bit rate.
    RateExceeded = "rate_exceeded",
    /// The quota is used up.
    QuotaExhausted = "quota_exhausted",
    /// More packets than may be held, or for longer.
    HoldLimit = "hold_limit",
    /// What was held was given up, as the control plane said.
    HoldDiscarded = "hold_discarded",
    /// What was held by a fast half that has ended: the one after it says so.
    HoldLost = "hold_lost",
    /// The time to live has run out.
    TimeToLive = "time_to_live",
    /// Too long for the way, and must not be fragmented.
    TooLong = "too_long",
    /// A fragment whose first one was not seen.
    FragmentUnknown = "fragment_unknown",
    /// A fragment of the outer packet.
    OuterFragment = "outer_fragment",
    /// Linux has no route to there.
    NoRoute = "no_route",
    /// The interface by which Linux would send it is down, or has no carrier.
    LinkDown = "link_down",
    /// Linux does not know the neighbour yet, and what waits for it is too much.
    NoNeighbour = "no_neighbour",
    /// A tunnel's far end in our own network, or another way that leads back to us: also from user
    /// to user by rules that send it to users again.
    Loop = "loop",
    /// Echo requests answered.
    EchoAnswered = "echo_answered",
    /// Echo responses taken.
    EchoResponse = "echo_response",
    /// Error indications sent.
    ErrorIndicationSent = "error_indication_sent",
    /// Error indications that were due and not sent: too many, or too soon after the start.
    ErrorIndicationSuppressed = "error_indication_suppressed",
    /// Error indications taken.
    ErrorIndicationReceived = "error_indication_received",
    /// Error indications not believed.
    ErrorIndicationIgnored = "error_indication_ignored",
    /// End markers sent.
    EndMarkerSent = "end_marker_sent",
    /// End markers taken.
    EndMarkerReceived = "end_marker_received",
    /// Other answers of ours: extension headers that we support.
    ExtensionNotification = "extension_notification",
    /// ICMP errors sent to users and to the network.
    IcmpSent = "icmp_sent",
    /// ICMP errors that were due and not sent: too many.
    IcmpSuppressed = "icmp_suppressed",
    /// GTP-U to an address of ours by an interface that does not have it.
    WrongInterface = "wrong_interface",
    /// The outer header says that it met congestion, and the inner one cannot (RFC 6040 clause
    /// 4.2).
    Congested = "congested",
    /// From user to user, and there is no port for that.
    NoHairpin = "no_hairpin",
    /// Sent somewhere else by the control plane (redirect): dropped, and answered if it is of a
    /// client of the web.
    Redirected = "redirected",
    /// From the user, on its way by Linux, which finds out where the neighbour is.
    ForwardedByLinux = "forwarded_by_linux",
    /// Echo requests that were not answered: too many.
    EchoSuppressed = "echo_suppressed",
    /// Pieces made of packets that were too long.
    Fragmented = "fragmented",
    /// A packet of ours for which there was no frame.
    NoFrame = "no_frame",
    /// Copies made for DUPL.
    Duplicated = "duplicated",
    /// Packets from user to user.
    UserToUser = "user_to_user",
    /// Copies for DUPL that were due and not made: no way, no frame, or too long for the way.
    NotDuplicated = "not_duplicated",
    /// Answers to clients of the web that are redirected.
    RedirectSent = "redirect_sent",
    /// Those that were due and not sent: too many, or no way to the user.
    RedirectSuppressed = "redirect_suppressed",
}
