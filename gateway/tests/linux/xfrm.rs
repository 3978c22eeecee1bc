//! Linux's own XFRM followed, as far as this Linux goes, and told in return; seen by `ip xfrm`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway::xfrm::association::Association;
use gateway::xfrm::linux::kernel::Netlink;
use gateway::xfrm::linux::mirror::{Mirror, Plane};
use gateway::xfrm::message::{AF_INET, Selector};
use gateway::xfrm::parse::Refusal;
use gateway::xfrm::server::News;
use gateway::xfrm::state::{Carrier, Limits, Protected, Usage};
use policy::model::Binding;
use wire::esp::Direction;

use crate::netns::{ip, ip_may_fail, within};

/// Data plane that notes SPIs, with the last number of Linux's and the number of selectors.
#[derive(Clone, Default)]
struct Noted {
    carried: Arc<Mutex<Vec<(u32, u64, usize)>>>,
    usage: Arc<Mutex<Usage>>,
}

impl Noted {
    fn carried(&self) -> Vec<(u32, u64, usize)> {
        self.carried.lock().unwrap().clone()
    }
}

impl Carrier for Noted {
    fn add(&mut self, association: &Arc<Association>, protected: &Protected) -> Result<(), Refusal> {
        self.carried.lock().unwrap().push((
            association.spi,
            association.numbers.sent,
            protected.packets.len(),
        ));
        Ok(())
    }

    fn change(
        &mut self,
        _: &Association,
        new: &Arc<Association>,
        protected: &Protected,
    ) -> Result<(), Refusal> {
        let mut carried = self.carried.lock().unwrap();
        let own = carried.iter_mut().find(|own| own.0 == new.spi).unwrap();
        own.2 = protected.packets.len();
        Ok(())
    }

    fn remove(&mut self, associations: &[&Association]) {
        let is_gone = |spi| associations.iter().any(|association| association.spi == spi);
        self.carried.lock().unwrap().retain(|own| !is_gone(own.0));
    }

    fn usage(&mut self, _: &Association) -> Usage {
        *self.usage.lock().unwrap()
    }
}

impl Plane for Noted {
    fn tunnel_for(&mut self, association: &Association) -> Option<Direction> {
        let is_local = association.source.to_string() == "192.0.2.1";
        Some(if is_local { Direction::Out } else { Direction::In })
    }

    fn as_carrier(&mut self) -> &mut dyn Carrier {
        self
    }
}

fn mirror(noted: &Noted) -> Option<Mirror<Netlink>> {
    match Netlink::open() {
        Ok(kernel) => Some(Mirror::new(Limits { sas: 64, policies: 64 }, kernel, Box::new(noted.clone()))),
        Err(error) => {
            eprintln!("SKIPPED: this Linux has no XFRM: {error}");
            None
        }
    }
}

const POLICY: &str = "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 7 mode tunnel";

/// A packet of the policy needs an association.
fn needed() -> News {
    let address = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let packet = Selector {
        source: address("10.1.0.9").into(),
        destination: address("10.2.0.9").into(),
        source_len: 32,
        destination_len: 32,
        family: AF_INET,
        ..Selector::default()
    };
    News::Needed {
        tunnel: Binding::Ends(address("192.0.2.1"), Some(address("192.0.2.2"))),
        packet,
        cpu: None,
    }
}

/// Linux itself tells the daemons that listen to it what the gateway needs: for a policy of before, one that came, and one that is
/// found by a list; and no more once it has gone.
#[test]
fn linux_tells_daemons_that_a_packet_needs_an_association() {
    within("xfrm::linux_tells_daemons_that_a_packet_needs_an_association", || {
        let noted = Noted::default();
        let Some(mut first) = mirror(&noted) else { return };
        let mut monitor =
            Command::new("ip").args(["xfrm", "monitor", "acquire"]).stdout(Stdio::piped()).spawn().unwrap();
        let (to, lines) = channel();
        let output = BufReader::new(monitor.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        // Which it does once its socket is bound.
        let heard = |mirror: &mut Mirror<Netlink>, patience| {
            mirror.follow();
            mirror.hear(needed());
            let mut all = Vec::new();
            while let Ok(line) = lines.recv_timeout(patience) {
                all.push(line);
            }
            all.join("\n")
        };
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(heard(&mut first, Duration::from_millis(200)), "");
        ip(POLICY);
        let told = heard(&mut first, Duration::from_millis(500));
        assert!(told.contains("acquire") && told.contains("10.1.0.9/32 dst 10.2.0.9/32"), "{told}");
        assert!(told.contains("dst 192.0.2.2") && told.contains("reqid 7"), "{told}");
        let mut second = mirror(&noted).unwrap();
        assert!(heard(&mut second, Duration::from_millis(500)).contains("acquire"));
        ip("xfrm policy delete src 10.1.0.0/16 dst 10.2.0.0/16 dir out");
        ip(POLICY);
        ip("xfrm policy flush");
        assert_eq!(heard(&mut first, Duration::from_millis(200)), "");
        monitor.kill().unwrap();
        monitor.wait().unwrap();
    });
}

/// Sends a packet that the policy is for, as a program of the machine does. False if Linux does not let it go.
fn send() -> bool {
    let socket = std::net::UdpSocket::bind("10.1.0.1:0").unwrap();
    socket.send_to(b"in ESP", "10.2.0.9:9").is_ok()
}

/// Packets that Linux dropped as their association had no number left.
fn without_number() -> u64 {
    let counts = std::fs::read_to_string("/proc/net/xfrm_stat").unwrap_or_default();
    let line = counts.lines().find(|line| line.starts_with("XfrmOutStateSeqError"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// An association that only has an SPI is left alone. By one that is carried, Linux sends no more; the gateway goes on behind what
/// Linux has sent.
#[test]
fn an_association_is_taken_from_linux() {
    within("xfrm::an_association_is_taken_from_linux", || {
        let noted = Noted::default();
        let Some(mut mirror) = mirror(&noted) else { return };
        mirror.follow();
        let ends = "src 192.0.2.1 dst 192.0.2.2 proto esp";
        ip(&format!("xfrm state allocspi {ends} mode tunnel min 0x1000 max 0x1000"));
        mirror.follow();
        assert_eq!(noted.carried(), []);
        ip(&format!("xfrm state delete {ends} spi 0x1000"));
        ip(POLICY);
        let key = |last| format!("0x000102030405060708090a0b0c0d0e0f101112{last}");
        let add = |spi, more, last| {
            let key = key(last);
            format!(
                "xfrm state add {ends} spi {spi} reqid 7 mode tunnel {more} aead rfc4106(gcm(aes)) {key} 128"
            )
        };
        // A window by attribute or by field, and extended numbers: each is another counter of Linux's.
        let kinds = [
            ("0x2001", "replay-window 64"),
            ("0x2002", "replay-window 32"),
            ("0x2003", "replay-window 64 flag esn"),
        ];
        let begin = add(kinds[0].0, kinds[0].1, 13);
        if let Err(error) = ip_may_fail(&begin) {
            eprintln!("SKIPPED: this Linux has no ESP: {error}");
            return;
        }
        ip("xfrm state flush");
        ip("link add wan type dummy");
        ip("addr add 192.0.2.1/24 dev wan");
        ip("addr add 10.1.0.1/24 dev wan");
        ip("link set wan up");
        ip("route add 10.2.0.0/16 dev wan src 10.1.0.1");
        for (number, (spi, more)) in kinds.into_iter().enumerate() {
            ip(&add(spi, more, 20 + number));
            assert!(send() && send() && send(), "Linux sends by its association");
            mirror.follow();
            let number = u32::from_str_radix(&spi[2..], 16).unwrap();
            assert_eq!(noted.carried(), [(number, 3, 1)]);
            let before = without_number();
            assert!(!send());
            assert_eq!(without_number(), before + 1);
            let shown = || ip(&format!("-s xfrm state get {ends} spi {spi}"));
            assert!(shown().contains("oseq 0xffffffff"), "{}", shown());
            *noted.usage.lock().unwrap() = Usage { packets: 12, bytes: 3_456, ..Usage::default() };
            mirror.tick();
            assert!(shown().contains("15(packets)"), "{}", shown());
            // It stays so.
            assert!(!send());
            *noted.usage.lock().unwrap() = Usage::default();
            // A gateway that begins now does not know what was sent.
            let other = Noted::default();
            let mut second = crate::xfrm::mirror(&other).unwrap();
            second.follow();
            assert_eq!(other.carried(), []);
            ip("xfrm state flush");
            mirror.follow();
            assert_eq!(noted.carried(), []);
        }
    });
}
