//! Published values that estimates are compared with.

/// Processor with a published speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// Its name.
    pub name: &'static str,
    /// Its speed in DMIPS.
    pub dmips: f64,
}

/// PC1 to PC4 of RENA-CHIP's study, measured (table 2).
pub const PC1: Processor = Processor { name: "Celeron 700 MHz (PC1)", dmips: 764.588 };
/// See [`PC1`].
pub const PC2: Processor = Processor { name: "Pentium 4 1.5 GHz (PC2)", dmips: 1_191.991 };
/// See [`PC1`].
pub const PC3: Processor = Processor { name: "Xeon 2.4 GHz (PC3)", dmips: 2_021.28 };
/// See [`PC1`].
pub const PC4: Processor = Processor { name: "Pentium 4 3.06 GHz (PC4)", dmips: 2_539.61 };
/// Embedded processor that the study tried its equation on (section 3.1).
pub const MIPS32: Processor = Processor { name: "MIPS32 200 MHz", dmips: 117.0 };
/// Network processor of Intel; the study takes 2.5 billion instructions a second for DMIPS (section 3.1).
pub const IXP2325: Processor = Processor { name: "IXP2325", dmips: 2_500.0 };
/// Network processor of Cavium Networks; the study derives its speed from that of another MIPS64 (section 2).
pub const CN3120: Processor = Processor { name: "OCTEON CN3120", dmips: 1_543.0 };

/// Processors of RENA-CHIP's study.
pub const PROCESSORS: [Processor; 7] = [PC1, PC2, PC3, PC4, MIPS32, IXP2325, CN3120];

/// Package with published thermal resistances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Package {
    /// Kind and number of balls.
    pub name: &'static str,
    /// Length of a side, in millimetres.
    pub side: f64,
    /// Least and largest thermal resistance from junction to still air, by size of the die, in K/W.
    pub theta: [f64; 2],
}

/// Packages of NEC Electronics ("Thermal characteristics", pages on FCBGA and ABGA): calculated for JEDEC's wind tunnel at 0 m/s, on a
/// test board of four layers. RENA-CHIP's study draws its packages as lines of figure 5, whose values are not in its text.
pub const PACKAGES: [Package; 4] = [
    Package { name: "FCBGA, 625 balls", side: 27.0, theta: [12.0, 15.0] },
    Package { name: "ABGA, 352 balls", side: 35.0, theta: [13.0, 14.0] },
    Package { name: "ABGA, 500 and 576 balls", side: 40.0, theta: [11.0, 12.0] },
    Package { name: "ABGA, 756 balls", side: 45.0, theta: [9.0, 10.0] },
];
