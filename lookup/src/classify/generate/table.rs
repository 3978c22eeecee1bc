//! Distributions of real rule sets: shares in percent or per mille, measured on sets that ClassBench's generator made from
//! the seeds acl1, fw1 and ipc1, and rounded.

/// Distributions of one kind of rule set.
pub(super) struct Kind {
    /// Protocol with the classes of its ports.
    pub(super) classes: &'static [(&'static Class, u32)],
    /// Source addresses.
    pub(super) source: Tree,
    /// Destination addresses.
    pub(super) destination: Tree,
    /// Per mille of the rules between prefixes long enough that are within one site.
    pub(super) alike: u64,
    /// Percent of the rules that are about the source and destination of another.
    pub(super) again: u64,
    /// Source ports that stand alone.
    pub(super) sports: &'static [(u16, u32)],
    /// Ranges of source ports.
    pub(super) sport_ranges: &'static [((u16, u16), u32)],
    /// Destination ports that stand alone.
    pub(super) dports: &'static [(u16, u32)],
    /// Ranges of destination ports.
    pub(super) dport_ranges: &'static [((u16, u16), u32)],
}

/// Prefix lengths and their shares.
pub(super) type Lengths = [(u8, u32)];

/// Values and masks of the flags, and their shares.
type Flags = [((u16, u16), u32)];

/// Rules of one protocol whose ports are of the same classes.
pub(super) struct Class {
    /// `None` for any.
    pub(super) protocol: Option<u8>,
    pub(super) sport: Ports,
    pub(super) dport: Ports,
    pub(super) flags: &'static Flags,
    /// Lengths of source and destination, as pairs of independent shares: the pairs' shares make them depend.
    pub(super) lengths: &'static [((&'static Lengths, &'static Lengths), u32)],
}

/// ClassBench's classes of ports; LO, below 1024, does not occur in these seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    /// WC.
    Any,
    /// HI: 1024 and above.
    High,
    /// AR: any other range.
    Range,
    /// EM: one port.
    Exact,
}

/// Branching of the addresses of one side.
pub(super) struct Tree {
    /// Number of rules that share a part of the tree of their own.
    pub(super) crowd: usize,
    /// Greatest depth of nested prefixes.
    pub(super) nested: usize,
    /// Percent of the addresses that have been in another rule.
    pub(super) again: u64,
    /// Branching from each level on: percent of the nodes with two children, and by how much the lighter child is
    /// lighter, in percent.
    levels: &'static [(u8, u64, u64)],
}

impl Tree {
    /// Percent of the nodes at `level` with two children, and their skew.
    pub(super) fn at(&self, level: u8) -> (u64, u64) {
        let row = self.levels.iter().rev().find(|row| row.0 <= level);
        row.map_or((0, 0), |row| (row.1, row.2))
    }
}

const fn class(
    protocol: Option<u8>,
    (sport, dport): (Ports, Ports),
    flags: &'static Flags,
    lengths: &'static [((&'static Lengths, &'static Lengths), u32)],
) -> Class {
    Class { protocol, sport, dport, flags, lengths }
}

use Ports::{Any, Exact, High, Range};

const ICMP: Option<u8> = Some(1);
const TCP: Option<u8> = Some(6);
const UDP: Option<u8> = Some(17);
const GRE: Option<u8> = Some(47);
const ESP: Option<u8> = Some(50);
const AH: Option<u8> = Some(51);

const NO_FLAGS: &Flags = &[((0, 0), 1)];

/// Hosts, and pairs of them.
const HOSTS: &Lengths = &[(30, 6), (31, 28), (32, 66)];
/// Nearly hosts alone.
const SINGLE: &Lengths = &[(30, 1), (31, 25), (32, 74)];
/// Hosts and small networks.
const SMALL: &Lengths = &[(28, 14), (29, 15), (30, 14), (31, 24), (32, 33)];
/// The smallest networks.
const TINY: &Lengths = &[(28, 60), (29, 28), (31, 3), (32, 9)];
/// Everything, and halves and quarters of it: ClassBench smooths its lengths.
const WIDE: &Lengths = &[(0, 65), (1, 31), (2, 4)];

const ACL_NETS: &Lengths = &[(21, 10), (22, 35), (23, 29), (24, 18), (25, 8)];
const ACL_SITES: &Lengths = &[(22, 13), (23, 48), (24, 34), (25, 5)];
const ACL_LOOSE: &Lengths = &[(29, 6), (30, 15), (31, 35), (32, 44)];
const ACL_FAR: &Lengths = &[
    (4, 5),
    (5, 7),
    (6, 4),
    (7, 6),
    (8, 4),
    (14, 6),
    (15, 15),
    (16, 22),
    (17, 19),
    (24, 4),
    (25, 4),
    (26, 4),
];
const ACL_ROUGH: &Lengths = &[(7, 11), (8, 13), (21, 2), (22, 20), (23, 36), (24, 18)];
const ACL_NEAR_ALL: &Lengths = &[(0, 35), (1, 25), (2, 17), (3, 23)];

/// Hosts, and nearly as many pairs.
const FW_HOSTS: &Lengths = &[(30, 9), (31, 43), (32, 48)];
const FW_NETS: &Lengths = &[
    (7, 4),
    (8, 4),
    (11, 4),
    (13, 3),
    (15, 3),
    (16, 3),
    (20, 11),
    (21, 14),
    (22, 12),
    (23, 11),
    (24, 4),
    (25, 6),
    (26, 8),
    (27, 13),
];
const FW_SITES: &Lengths = &[(20, 21), (21, 36), (22, 37), (23, 6)];

const IPC_NETS: &Lengths =
    &[(15, 2), (16, 5), (17, 4), (21, 2), (22, 10), (23, 26), (24, 24), (25, 16), (26, 7), (27, 4)];
const IPC_PARTS: &Lengths =
    &[(15, 4), (16, 8), (17, 5), (22, 3), (23, 12), (24, 25), (25, 22), (26, 14), (27, 7)];

static ACL_EXACT: Class = class(
    TCP,
    (Any, Exact),
    ACL_FLAGS,
    &[((HOSTS, HOSTS), 78), ((ACL_LOOSE, ACL_NETS), 14), ((ACL_SITES, SMALL), 8)],
);
static ACL_RANGE: Class =
    class(TCP, (Any, Range), ACL_FLAGS, &[((HOSTS, HOSTS), 97), ((ACL_SITES, HOSTS), 3)]);
static ACL_OPEN: Class = class(TCP, (Any, Any), ACL_FLAGS, ACL_OPEN_LENGTHS);
static ACL_ALL: Class = class(None, (Any, Any), NO_FLAGS, ACL_OPEN_LENGTHS);
static ACL_ICMP: Class = class(ICMP, (Any, Any), NO_FLAGS, ACL_OPEN_LENGTHS);
static ACL_UDP: Class = class(UDP, (Any, Exact), NO_FLAGS, &[((HOSTS, HOSTS), 80), ((HOSTS, ACL_NETS), 20)]);

const ACL_OPEN_LENGTHS: &[((&Lengths, &Lengths), u32)] = &[
    ((HOSTS, SINGLE), 34),
    ((ACL_LOOSE, ACL_NETS), 30),
    ((ACL_SITES, ACL_FAR), 17),
    ((ACL_SITES, HOSTS), 13),
    ((ACL_ROUGH, ACL_NEAR_ALL), 4),
    ((WIDE, ACL_FAR), 2),
];
const ACL_FLAGS: &Flags = &[((0, 0), 81), ((0, 0x0200), 10), ((0x1000, 0x1000), 9)];

/// An access list.
pub(super) static ACL: Kind = Kind {
    classes: &[
        (&ACL_EXACT, 593),
        (&ACL_OPEN, 167),
        (&ACL_RANGE, 115),
        (&ACL_ALL, 82),
        (&ACL_ICMP, 29),
        (&ACL_UDP, 14),
    ],
    source: Tree {
        crowd: 80,
        nested: 4,
        again: 50,
        levels: &[
            (0, 0, 0),
            (20, 20, 97),
            (21, 46, 97),
            (22, 90, 96),
            (24, 57, 66),
            (25, 66, 45),
            (26, 78, 26),
            (30, 53, 9),
            (31, 13, 0),
        ],
    },
    destination: Tree {
        crowd: 60,
        nested: 6,
        again: 80,
        levels: &[
            (0, 60, 27),
            (7, 50, 35),
            (9, 3, 20),
            (14, 5, 55),
            (20, 8, 60),
            (24, 6, 45),
            (29, 10, 26),
            (30, 20, 5),
            (31, 3, 0),
        ],
    },
    alike: 60,
    again: 25,
    sports: &[(53, 1)],
    sport_ranges: &[((1025, 65535), 1)],
    dports: &[
        (1521, 182),
        (1526, 56),
        (1221, 40),
        (1433, 36),
        (135, 32),
        (1525, 32),
        (14753, 28),
        (1711, 25),
        (1724, 24),
        (1704, 23),
        (1717, 22),
        (1708, 22),
        (20, 22),
        (1712, 21),
        (1705, 21),
        (1733, 21),
        (21, 21),
        (6000, 21),
        (5555, 19),
        (1707, 19),
        (5540, 19),
        (1490, 16),
        (5632, 15),
        (5541, 15),
        (1734, 14),
        (5631, 14),
        (1706, 14),
        (1489, 12),
        (6789, 12),
        (2121, 10),
        (1715, 9),
        (6790, 9),
        (32201, 8),
        (32200, 7),
        (30210, 7),
        (65500, 6),
        (3031, 5),
        (27000, 5),
        (2110, 5),
        (80, 5),
        (443, 5),
        (1540, 4),
        (31000, 4),
        (27400, 4),
        (12050, 4),
        (1601, 4),
        (512, 3),
        (1432, 3),
        (1352, 2),
        (7205, 2),
    ],
    dport_ranges: &[
        ((1600, 1649), 9),
        ((1300, 1349), 7),
        ((1300, 1350), 7),
        ((7500, 7599), 6),
        ((32200, 32207), 4),
        ((2200, 2210), 4),
        ((1700, 1750), 4),
        ((1025, 65535), 4),
        ((5001, 65535), 4),
        ((8000, 8100), 3),
        ((20000, 20010), 3),
        ((1600, 1650), 3),
        ((1700, 1720), 3),
        ((61000, 61009), 2),
        ((61200, 61209), 2),
        ((61300, 61309), 2),
        ((61400, 61409), 2),
        ((61500, 61509), 2),
        ((61600, 61609), 2),
        ((61700, 61709), 2),
        ((61800, 61809), 3),
        ((61900, 61909), 2),
        ((62000, 62009), 2),
        ((62400, 62409), 2),
        ((62500, 62509), 3),
        ((62600, 62609), 4),
        ((62700, 62709), 3),
    ],
};

static FW_TO_SERVICE: Class = class(TCP, (Any, Exact), FW_FLAGS, FW_TO_LENGTHS);
static FW_TO_SERVICE_UDP: Class = class(UDP, (Any, Exact), NO_FLAGS, FW_TO_LENGTHS);
static FW_FROM_SERVICE: Class =
    class(UDP, (Exact, Any), NO_FLAGS, &[((FW_HOSTS, WIDE), 87), ((WIDE, FW_HOSTS), 9), ((WIDE, WIDE), 4)]);
static FW_OPEN: Class = class(TCP, (Any, Any), FW_FLAGS, FW_OPEN_LENGTHS);
static FW_GRE: Class = class(GRE, (Any, Any), NO_FLAGS, FW_OPEN_LENGTHS);
static FW_ICMP: Class = class(
    ICMP,
    (Any, Any),
    &[
        ((0, 0), 24),
        ((0x0f00, 0xff00), 20),
        ((0x0d00, 0xff00), 17),
        ((0x1100, 0xff00), 16),
        ((0, 0xff00), 12),
        ((0x0800, 0xff00), 11),
    ],
    FW_OPEN_LENGTHS,
);
static FW_ALL: Class = class(None, (Any, Any), NO_FLAGS, FW_OPEN_LENGTHS);
static FW_HIGH: Class = class(TCP, (High, High), FW_FLAGS, FW_HIGH_LENGTHS);
static FW_HIGH_UDP: Class = class(UDP, (High, High), NO_FLAGS, FW_HIGH_LENGTHS);
static FW_HIGH_TO: Class = class(UDP, (High, Exact), NO_FLAGS, FW_HIGH_LENGTHS);
static FW_HIGH_TRACE: Class = class(UDP, (High, Range), NO_FLAGS, FW_HIGH_LENGTHS);
static FW_BOTH: Class = class(UDP, (Exact, Exact), NO_FLAGS, FW_BOTH_LENGTHS);
static FW_TO_HIGH: Class = class(UDP, (Exact, High), NO_FLAGS, FW_BOTH_LENGTHS);

const FW_TO_LENGTHS: &[((&Lengths, &Lengths), u32)] =
    &[((WIDE, FW_HOSTS), 93), ((WIDE, WIDE), 4), ((FW_HOSTS, WIDE), 2), ((FW_HOSTS, FW_HOSTS), 1)];
const FW_OPEN_LENGTHS: &[((&Lengths, &Lengths), u32)] =
    &[((FW_NETS, WIDE), 39), ((SMALL, WIDE), 34), ((SMALL, SMALL), 23), ((WIDE, WIDE), 4)];
const FW_HIGH_LENGTHS: &[((&Lengths, &Lengths), u32)] =
    &[((WIDE, FW_HOSTS), 56), ((SINGLE, SINGLE), 22), ((SINGLE, FW_SITES), 22)];
const FW_BOTH_LENGTHS: &[((&Lengths, &Lengths), u32)] =
    &[((FW_HOSTS, WIDE), 48), ((SMALL, SMALL), 30), ((WIDE, FW_HOSTS), 22)];
const FW_FLAGS: &Flags = &[
    ((0x0200, 0x1200), 960),
    ((0, 0), 14),
    ((0x0400, 0x0400), 8),
    ((0x0100, 0x0100), 7),
    ((0x1000, 0x1000), 6),
    ((0, 0x0200), 5),
];

/// A firewall.
pub(super) static FW: Kind = Kind {
    classes: &[
        (&FW_TO_SERVICE, 446),
        (&FW_TO_SERVICE_UDP, 139),
        (&FW_FROM_SERVICE, 107),
        (&FW_OPEN, 87),
        (&FW_GRE, 48),
        (&FW_ICMP, 37),
        (&FW_ALL, 12),
        (&FW_HIGH, 38),
        (&FW_HIGH_UDP, 21),
        (&FW_HIGH_TO, 20),
        (&FW_HIGH_TRACE, 1),
        (&FW_BOTH, 25),
        (&FW_TO_HIGH, 19),
    ],
    source: Tree {
        crowd: 8,
        nested: 4,
        again: 25,
        levels: &[
            (0, 60, 30),
            (4, 30, 60),
            (9, 15, 85),
            (18, 20, 75),
            (24, 35, 65),
            (29, 50, 20),
            (31, 8, 0),
        ],
    },
    destination: Tree {
        crowd: 4,
        nested: 4,
        again: 30,
        levels: &[(0, 60, 40), (6, 40, 50), (9, 5, 40), (18, 14, 60), (25, 25, 40), (29, 40, 20), (31, 8, 0)],
    },
    alike: 170,
    again: 15,
    sports: &[
        (123, 243),
        (53, 178),
        (750, 119),
        (161, 111),
        (69, 87),
        (88, 72),
        (67, 58),
        (24032, 54),
        (7648, 48),
        (162, 28),
    ],
    sport_ranges: &[((33434, 33600), 1)],
    dports: &[
        (22, 159),
        (80, 106),
        (25, 95),
        (53, 95),
        (123, 74),
        (544, 33),
        (2105, 31),
        (21, 30),
        (750, 28),
        (161, 27),
        (443, 27),
        (23, 21),
        (119, 20),
        (88, 19),
        (7648, 18),
        (67, 18),
        (110, 17),
        (69, 17),
        (37, 16),
        (5999, 15),
        (1999, 14),
        (179, 13),
        (754, 10),
        (24032, 8),
        (143, 7),
        (162, 7),
        (137, 7),
        (138, 7),
        (879, 7),
        (7649, 6),
        (873, 6),
        (871, 6),
        (2055, 6),
        (139, 6),
        (13, 5),
        (8080, 5),
        (5998, 4),
        (7326, 4),
        (2401, 4),
        (113, 4),
    ],
    dport_ranges: &[((33434, 33600), 1)],
};

static IPC_ALL: Class = class(None, (Any, Any), NO_FLAGS, IPC_OPEN_LENGTHS);
static IPC_TCP_OPEN: Class = class(TCP, (Any, Any), IPC_FLAGS, IPC_OPEN_LENGTHS);
static IPC_UDP_OPEN: Class = class(UDP, (Any, Any), NO_FLAGS, IPC_OPEN_LENGTHS);
static IPC_ICMP: Class = class(
    ICMP,
    (Any, Any),
    &[
        ((0x0500, 0xff00), 55),
        ((0x0c00, 0xff00), 9),
        ((0, 0), 8),
        ((0x0e00, 0xff00), 7),
        ((0x0b00, 0xff00), 7),
        ((0x0400, 0xff00), 5),
        ((0x0800, 0xff00), 5),
        ((0x0300, 0xff00), 4),
    ],
    IPC_OPEN_LENGTHS,
);
static IPC_GRE: Class = class(GRE, (Any, Any), NO_FLAGS, IPC_OPEN_LENGTHS);
static IPC_ESP: Class = class(ESP, (Any, Any), NO_FLAGS, IPC_OPEN_LENGTHS);
static IPC_AH: Class = class(AH, (Any, Any), NO_FLAGS, IPC_OPEN_LENGTHS);
static IPC_UDP_TO: Class = class(UDP, (Any, Exact), NO_FLAGS, IPC_TO_LENGTHS);
static IPC_TCP_TO: Class = class(TCP, (Any, Exact), IPC_FLAGS, IPC_TO_LENGTHS);
static IPC_UDP_FROM: Class = class(UDP, (Exact, Any), NO_FLAGS, IPC_FROM_LENGTHS);
static IPC_TCP_FROM: Class = class(TCP, (Exact, Any), IPC_FLAGS, IPC_FROM_LENGTHS);
static IPC_TCP_FROM_RANGE: Class = class(TCP, (Range, Any), IPC_FLAGS, IPC_FROM_LENGTHS);
static IPC_UDP_FROM_RANGE: Class = class(UDP, (Range, Any), NO_FLAGS, IPC_FROM_LENGTHS);
static IPC_UDP_FROM_HIGH: Class = class(UDP, (High, Any), NO_FLAGS, IPC_FROM_LENGTHS);
static IPC_UDP_HIGH: Class =
    class(UDP, (Any, High), NO_FLAGS, &[((HOSTS, HOSTS), 70), ((IPC_NETS, HOSTS), 30)]);
static IPC_TCP_RANGE: Class = class(TCP, (Any, Range), IPC_FLAGS, IPC_RANGE_LENGTHS);
static IPC_UDP_RANGE: Class = class(UDP, (Any, Range), NO_FLAGS, IPC_RANGE_LENGTHS);
static IPC_UDP_BOTH: Class = class(UDP, (Exact, Exact), NO_FLAGS, &[((HOSTS, HOSTS), 1)]);

const IPC_OPEN_LENGTHS: &[((&Lengths, &Lengths), u32)] = &[
    ((IPC_NETS, IPC_PARTS), 75),
    ((IPC_NETS, WIDE), 9),
    ((WIDE, IPC_NETS), 7),
    ((IPC_NETS, TINY), 5),
    ((TINY, IPC_PARTS), 3),
    ((WIDE, WIDE), 1),
];
const IPC_TO_LENGTHS: &[((&Lengths, &Lengths), u32)] = &[
    ((IPC_NETS, SMALL), 10),
    ((IPC_NETS, HOSTS), 19),
    ((HOSTS, SINGLE), 27),
    ((IPC_NETS, IPC_PARTS), 13),
    ((WIDE, HOSTS), 10),
    ((IPC_NETS, WIDE), 9),
    ((WIDE, IPC_PARTS), 7),
    ((HOSTS, WIDE), 2),
    ((HOSTS, IPC_PARTS), 3),
];
const IPC_FROM_LENGTHS: &[((&Lengths, &Lengths), u32)] = &[
    ((HOSTS, IPC_PARTS), 50),
    ((IPC_NETS, HOSTS), 15),
    ((WIDE, HOSTS), 14),
    ((HOSTS, WIDE), 7),
    ((IPC_NETS, IPC_PARTS), 6),
    ((HOSTS, SMALL), 5),
    ((WIDE, IPC_NETS), 3),
];
const IPC_RANGE_LENGTHS: &[((&Lengths, &Lengths), u32)] =
    &[((IPC_NETS, HOSTS), 76), ((WIDE, HOSTS), 12), ((HOSTS, HOSTS), 12)];
const IPC_FLAGS: &Flags = &[((0, 0), 58), ((0, 0x0200), 42)];

/// Chains of a Linux router.
pub(super) static IPC: Kind = Kind {
    classes: &[
        (&IPC_ALL, 328),
        (&IPC_UDP_TO, 218),
        (&IPC_TCP_TO, 139),
        (&IPC_UDP_FROM, 85),
        (&IPC_TCP_FROM, 80),
        (&IPC_UDP_HIGH, 60),
        (&IPC_TCP_OPEN, 23),
        (&IPC_TCP_RANGE, 18),
        (&IPC_TCP_FROM_RANGE, 15),
        (&IPC_ICMP, 11),
        (&IPC_UDP_RANGE, 6),
        (&IPC_UDP_BOTH, 4),
        (&IPC_UDP_FROM_RANGE, 3),
        (&IPC_UDP_FROM_HIGH, 3),
        (&IPC_GRE, 3),
        (&IPC_UDP_OPEN, 2),
        (&IPC_AH, 1),
        (&IPC_ESP, 1),
    ],
    source: Tree {
        crowd: 250,
        nested: 4,
        again: 65,
        levels: &[
            (0, 80, 30),
            (5, 20, 35),
            (8, 20, 42),
            (10, 12, 40),
            (13, 20, 90),
            (14, 60, 90),
            (17, 40, 70),
            (18, 14, 35),
            (20, 35, 81),
            (22, 75, 76),
            (25, 60, 68),
            (28, 30, 59),
            (29, 45, 40),
            (30, 60, 4),
            (31, 6, 0),
        ],
    },
    destination: Tree {
        crowd: 150,
        nested: 6,
        again: 50,
        levels: &[
            (0, 80, 20),
            (5, 70, 60),
            (6, 15, 58),
            (8, 50, 40),
            (10, 3, 90),
            (14, 15, 65),
            (15, 55, 85),
            (17, 14, 36),
            (18, 5, 40),
            (20, 14, 58),
            (21, 30, 86),
            (22, 65, 78),
            (25, 55, 60),
            (28, 30, 38),
            (30, 50, 4),
            (31, 6, 0),
        ],
    },
    alike: 40,
    again: 10,
    sports: &[
        (161, 262),
        (53, 132),
        (80, 88),
        (25, 86),
        (1433, 65),
        (143, 39),
        (22, 37),
        (5550, 35),
        (5540, 33),
        (5520, 30),
        (5530, 21),
        (5631, 21),
        (5500, 19),
        (69, 19),
        (5632, 19),
        (5510, 17),
        (500, 17),
        (123, 10),
        (1098, 9),
        (6789, 7),
        (135, 6),
        (138, 6),
    ],
    sport_ranges: &[((109, 110), 34), ((20, 23), 27), ((20, 21), 24), ((1645, 1646), 13), ((5000, 5001), 2)],
    dports: &[
        (69, 192),
        (514, 177),
        (80, 118),
        (9003, 82),
        (53, 71),
        (25, 47),
        (1433, 31),
        (137, 28),
        (162, 22),
        (113, 18),
        (143, 18),
        (161, 16),
        (22, 16),
        (119, 13),
        (139, 12),
        (5540, 10),
        (1645, 9),
        (500, 8),
        (1723, 8),
        (5631, 7),
        (1646, 7),
        (32774, 6),
        (5510, 6),
        (6346, 6),
        (524, 6),
        (7000, 5),
        (6970, 5),
        (5520, 5),
        (5530, 5),
        (1214, 5),
        (8875, 4),
        (7777, 4),
        (5550, 4),
        (135, 4),
        (2549, 3),
        (5500, 3),
        (6699, 3),
        (21, 3),
        (123, 3),
        (110, 2),
        (23, 2),
        (3389, 2),
        (5000, 2),
    ],
    dport_ranges: &[((109, 110), 27), ((20, 23), 23), ((20, 21), 23), ((1645, 1646), 16), ((1812, 1813), 11)],
};
