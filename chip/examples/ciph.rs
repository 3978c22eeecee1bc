#![allow(missing_docs, clippy::unwrap_used)]
use chip::cipher::CipherRun;
use ciphers::{ALL, Optimisation};
fn main() {
    let chip = chip::description::load(std::path::Path::new("chips/ixp2800.toml")).unwrap().chip.unwrap();
    let message: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    for cipher in ALL {
        let mut line = format!("{:9}", cipher.about.name);
        for optimisation in Optimisation::ALL {
            let r = CipherRun { chip: &chip, cipher, optimisation, engines: 1, threads: 1, message }
                .measure()
                .unwrap();
            let e = &r.engines[0];
            line += &format!(
                " | {:7.1} {:3.0}%{:2.0}%{:3.0}% ",
                r.mbps,
                e.executing * 100.,
                e.aborted * 100.,
                e.idle * 100.
            );
            if optimisation == Optimisation::Raw {
                line += &format!("code {} ", r.code_size);
                for m in &r.mix {
                    line += &format!("{:.1} ", m.share * 100.);
                }
            }
        }
        for (e, t) in [(1, 8), (4, 8), (8, 8)] {
            let r = CipherRun {
                chip: &chip,
                cipher,
                optimisation: Optimisation::Overlap,
                engines: e,
                threads: t,
                message,
            }
            .measure()
            .unwrap();
            line += &format!(" {e}x{t}: {:.0}", r.mbps);
        }
        println!("{line}");
    }
}
