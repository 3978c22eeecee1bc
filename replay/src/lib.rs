//! Captures played through a policy in their own time: the host's outside, around [`dataplane::Replay`].
//!
//! [`Captures`] reads files and finds the interface that each packet comes in by; a [`Player`] plays them through the policy's tables,
//! packet by packet, and tells a [`Witness`](dataplane::replay::Witness) the fate of each; an [`Observer`] measures on the way, and a
//! [`Summary`] says what became of all. The command and the Python package are made of the same parts.
//!
//! ```
//! use dataplane::Tables;
//! use replay::summary::Span;
//! use replay::{Captures, Named, Observer, Player, Readdress, Summary};
//! use wire::capture::{PcapngWriter, Record};
//! use wire::ethernet::Mac;
//! use wire::{Nanos, build};
//!
//! let text = r#"
//! [interface.lan]
//! zone = "lan"
//! addresses = ["192.168.1.1/24"]
//! [interface.wan]
//! zone = "wan"
//! addresses = ["203.0.113.2/24"]
//! [default]
//! "lan > wan" = "accept"
//! [[route]]
//! to = "0.0.0.0/0"
//! via = "203.0.113.1"
//! "#;
//! let policy = policy::check(text, "office.toml").policy.expect("a policy without errors");
//! let tables = Tables::compile(&policy, 1)?;
//!
//! // A capture of one packet.
//! let path = std::env::temp_dir().join(format!("wirerate-replay-{}.pcapng", std::process::id()));
//! let link = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
//! let packet = link.ipv4([192, 168, 1, 10].into(), [198, 51, 100, 7].into()).udp(4000, 53).to_vec();
//! let mut writer = PcapngWriter::create(&path)?;
//! writer.interface("lan")?;
//! writer.write(&Record::new(Nanos::from_secs(1), &packet))?;
//! writer.finish()?;
//!
//! let named = [Named { interface: None, path: path.clone() }];
//! let captures = Captures::open(&named, &tables, Readdress::Inferred)?;
//! let mut observer = Observer::new((), &tables, captures.start());
//! let mut player = Player::new(tables, captures)?;
//! while player.step(&mut observer, |number, packet, ()| assert_eq!((number, packet.bytes.len()), (0, 42))).is_some() {}
//! player.finish(&mut observer);
//! let span = Span { start: player.start(), end: player.end(), elapsed: Default::default() };
//! let Player { replay, captures, .. } = &mut player;
//! let summary = Summary::new(replay, &policy, captures, &observer.measured, span);
//! assert_eq!((summary.frames.received.frames, summary.frames.forwarded), (1, 1));
//! # std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod capture;
mod compile;
pub mod decrypt;
pub mod fate;
pub mod measurement;
pub mod number;
mod player;
pub mod split;
pub mod summary;

pub use capture::{Captures, Named, Readdress, Window};
pub use compile::{CompileRefusal, Compiled, StaticKeys, compile};
pub use decrypt::Decryptor;
pub use measurement::Observer;
pub use player::Player;
pub use summary::Summary;
