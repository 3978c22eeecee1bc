#![allow(missing_docs, clippy::unwrap_used)]
use chip::host::{Entry, Traffic};
use chip::machine::Ideal;
use chip::run::{Setup, Source};
use dataplane::classify::Algorithm;
use dataplane::replay::Way;
use dataplane::{Replay, Tables};
use wire::{Nanos, PortId};

struct Gen {
    left: u64,
    n: u64,
    gap_ps: u64,
}
impl Traffic for Gen {
    fn peek(&mut self) -> Option<Nanos> {
        (self.left > 0).then_some(Nanos(self.n * self.gap_ps / 1000))
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        self.left = self.left.checked_sub(1)?;
        let n = self.n;
        self.n += 1;
        let up = n % 2 == 0;
        let (src, dst) = (0xc0a80102u32.into(), 0xc6336407u32.into());
        let (src, dst): (std::net::Ipv4Addr, std::net::Ipv4Addr) = if up { (src, dst) } else { (dst, src) };
        let payload = [0u8; 18];
        let packet = wire::build::ethernet(
            wire::ethernet::Mac([2, 0, 0, 0, 0, 9]),
            wire::ethernet::Mac([2, 0, 0, 0, 0, if up { 1 } else { 2 }]),
        )
        .ipv4(src, dst)
        .udp(5000, 6000)
        .payload(&payload);
        let mut buf = [0u8; 128];
        let len = packet.write(&mut buf).unwrap();
        bytes.extend_from_slice(&buf[..60]);
        let _ = len;
        Some(Entry::new(Nanos(n * self.gap_ps / 1000), PortId(if up { 0 } else { 1 }), bytes.len()))
    }
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let chip = chip::description::load(std::path::Path::new("chips/ixp2400.toml")).unwrap().chip.unwrap();
    let m = chip::mapping::load(std::path::Path::new(&format!("chips/mappings/{}.toml", args[1])), &chip)
        .unwrap();
    for d in &m.diagnostics {
        println!("{d}");
    }
    let mapping = m.mapping.unwrap();
    for rules in args[2..].iter().map(|r| r.parse::<u32>().unwrap()) {
        let mut text = String::from(
            "mode = \"stateless\"\n[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\nmac = \"02:00:00:00:00:01\"\n[interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\nmac = \"02:00:00:00:00:02\"\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n",
        );
        for r in 0..rules.saturating_sub(1) {
            text.push_str(&format!(
                "[[rule]]\nname = \"r{r}\"\nprotocol = \"udp\"\ndport = {}\naction = \"drop\"\n",
                10000 + r
            ));
        }
        text.push_str("[[rule]]\nname = \"last\"\naction = \"accept\"\n");
        let policy = policy::check(&text, "probe").policy.unwrap();
        let algorithm = Algorithm::named(mapping.classifier.as_deref().unwrap_or("linear")).unwrap();
        let make = || {
            let tables = Tables::compile_for(&policy, 1, algorithm).unwrap();
            Ok(Source {
                replay: Replay::new(tables, Nanos(0), Way::Step)?,
                traffic: Box::new(Gen { left: 20000, n: 0, gap_ps: 672_000 }),
                start: Nanos(0),
            })
        };
        let setup = Setup { chip: &chip, mapping: &mapping, source: &make, warm: 4000 };
        let r = setup.run(Ideal::Nothing, &mut ()).unwrap();
        println!(
            "rules {rules}: offered {:.3} delivered {:.3} lost {} instr/pkt {:.0} simulated {:.1} M/s  p50 {:.0} ns",
            r.offered_mpps,
            r.dealt_mpps(),
            r.lost,
            r.instructions_per_packet,
            r.simulated_instructions as f64 / r.wall_seconds / 1e6,
            r.latency_ns.p50
        );
        for e in &r.engines {
            println!(
                "   {} {:?} exec {:.2} abort {:.2} stall {:.2} idle {:.2}",
                e.name, e.pools, e.executing, e.aborted, e.stalled, e.idle
            );
        }
        for m in &r.memories {
            println!(
                "   {} util {:.2} queue {:.1} {:?}",
                m.name,
                m.utilisation,
                m.queue,
                m.regions
                    .iter()
                    .map(|r| format!("{} {} {:.0}ns", r.name, r.references, r.mean_ns))
                    .collect::<Vec<_>>()
            );
        }
    }
}
