//! The chips and mappings that come with the program.

/// A description that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Name on the command line.
    pub name: &'static str,
    /// Its text, in TOML.
    pub text: &'static str,
}

/// The chips. One more is a file in `chips/` and a line here.
pub const CHIPS: &[Shipped] = &[
    Shipped { name: "bluefield3-dpa", text: include_str!("../chips/bluefield3-dpa.toml") },
    Shipped { name: "cn3120", text: include_str!("../chips/cn3120.toml") },
    Shipped { name: "ixp1200", text: include_str!("../chips/ixp1200.toml") },
    Shipped { name: "ixp1240", text: include_str!("../chips/ixp1240.toml") },
    Shipped { name: "ixp2325", text: include_str!("../chips/ixp2325.toml") },
    Shipped { name: "ixp2400", text: include_str!("../chips/ixp2400.toml") },
    Shipped { name: "ixp2800", text: include_str!("../chips/ixp2800.toml") },
    Shipped { name: "mips32", text: include_str!("../chips/mips32.toml") },
    Shipped { name: "nfp-4000", text: include_str!("../chips/nfp-4000.toml") },
    Shipped { name: "pc1", text: include_str!("../chips/pc1.toml") },
    Shipped { name: "pc2", text: include_str!("../chips/pc2.toml") },
    Shipped { name: "pc3", text: include_str!("../chips/pc3.toml") },
    Shipped { name: "pc4", text: include_str!("../chips/pc4.toml") },
    Shipped { name: "pro3", text: include_str!("../chips/pro3.toml") },
    Shipped { name: "pspin", text: include_str!("../chips/pspin.toml") },
    Shipped { name: "rena", text: include_str!("../chips/rena.toml") },
    Shipped { name: "tetra", text: include_str!("../chips/tetra.toml") },
];

/// The mappings. One more is a file in `chips/mappings/` and a line here.
pub const MAPPINGS: &[Shipped] = &[
    Shipped { name: "bluefield3-dpa-pool", text: include_str!("../chips/mappings/bluefield3-dpa-pool.toml") },
    Shipped { name: "cn3120-pool", text: include_str!("../chips/mappings/cn3120-pool.toml") },
    Shipped { name: "ixp1200-diffserv", text: include_str!("../chips/mappings/ixp1200-diffserv.toml") },
    Shipped { name: "ixp1200-pool", text: include_str!("../chips/mappings/ixp1200-pool.toml") },
    Shipped { name: "ixp1200-split", text: include_str!("../chips/mappings/ixp1200-split.toml") },
    Shipped { name: "ixp1200-tunnel", text: include_str!("../chips/mappings/ixp1200-tunnel.toml") },
    Shipped { name: "ixp1240-atm", text: include_str!("../chips/mappings/ixp1240-atm.toml") },
    Shipped { name: "ixp1240-pool", text: include_str!("../chips/mappings/ixp1240-pool.toml") },
    Shipped { name: "ixp1240-split", text: include_str!("../chips/mappings/ixp1240-split.toml") },
    Shipped { name: "ixp2325-pool", text: include_str!("../chips/mappings/ixp2325-pool.toml") },
    Shipped { name: "ixp2400-firewall", text: include_str!("../chips/mappings/ixp2400-firewall.toml") },
    Shipped { name: "ixp2400-firewall-1", text: include_str!("../chips/mappings/ixp2400-firewall-1.toml") },
    Shipped {
        name: "ixp2400-firewall-coded",
        text: include_str!("../chips/mappings/ixp2400-firewall-coded.toml"),
    },
    Shipped {
        name: "ixp2400-firewall-core",
        text: include_str!("../chips/mappings/ixp2400-firewall-core.toml"),
    },
    Shipped {
        name: "ixp2400-firewall-local",
        text: include_str!("../chips/mappings/ixp2400-firewall-local.toml"),
    },
    Shipped { name: "ixp2400-pool", text: include_str!("../chips/mappings/ixp2400-pool.toml") },
    Shipped { name: "ixp2800-pool", text: include_str!("../chips/mappings/ixp2800-pool.toml") },
    Shipped { name: "mips32-pool", text: include_str!("../chips/mappings/mips32-pool.toml") },
    Shipped { name: "nfp-4000-pool", text: include_str!("../chips/mappings/nfp-4000-pool.toml") },
    Shipped { name: "pc1-pool", text: include_str!("../chips/mappings/pc1-pool.toml") },
    Shipped { name: "pc2-pool", text: include_str!("../chips/mappings/pc2-pool.toml") },
    Shipped { name: "pc3-pool", text: include_str!("../chips/mappings/pc3-pool.toml") },
    Shipped { name: "pc4-pool", text: include_str!("../chips/mappings/pc4-pool.toml") },
    Shipped { name: "pro3-pool", text: include_str!("../chips/mappings/pro3-pool.toml") },
    Shipped { name: "pro3-shaped", text: include_str!("../chips/mappings/pro3-shaped.toml") },
    Shipped { name: "pspin-pool", text: include_str!("../chips/mappings/pspin-pool.toml") },
    Shipped { name: "rena-pool", text: include_str!("../chips/mappings/rena-pool.toml") },
    Shipped { name: "tetra-pool", text: include_str!("../chips/mappings/tetra-pool.toml") },
    Shipped { name: "tetra-row", text: include_str!("../chips/mappings/tetra-row.toml") },
];

/// The text of that name.
pub fn named(builtin: &[Shipped], name: &str) -> Option<&'static str> {
    builtin.iter().find(|shipped| shipped.name == name).map(|shipped| shipped.text)
}
