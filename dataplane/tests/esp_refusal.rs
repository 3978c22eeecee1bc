//! Refusals by security associations: of what the tunnel does not permit, behind the last number, and behind the end of a lifetime.

use dataplane::replay::Way;
use dataplane::sa::{Bound, Keys, SaAddition, SaError, SaNews, SaRequest};
use dataplane::{Reason, Verdict};
use policy::model::Lifetime;
use wire::esp::{Direction, Esn, Secret, Suite};
use wire::random::Random;
use wire::{Nanos, PortId};

use crate::esp::{KEYS, LAN, Outer, WAN, addition, change, packet, site, through};
use crate::scene::{Arrival, Gateway, START};

/// The tunnel of the policy decides which algorithms and numbers there are, for associations at run time, too, and for those of before a reload.
#[test]
fn what_the_tunnel_does_not_permit_is_refused_at_run_time() {
    let asked = |gateway: &Gateway, direction, esn, algorithm, auth, keys: [usize; 2]| {
        let [cipher, auth_key] = keys.map(|length| Secret::new(vec![0x5a; length].into()));
        let keys = Keys { cipher, auth: auth_key };
        let (suite, spi) = (Suite::named(algorithm, auth).unwrap(), 0x7000);
        let (tunnel, selectors, agreed) = ("peer", &[][..], None);
        let request = SaRequest { tunnel, direction, spi, esn, suite, keys: &keys, selectors, agreed };
        SaAddition::new(&gateway.tables, &request)
    };
    let of = |more| {
        let header = "[interface.peer.esp]\n";
        Gateway::new(&site(1, 2, Outer::V4, "").replace(header, &format!("{header}{more}")), Way::Run)
    };
    let (strict, lenient, off) = (of(""), of("legacy = true\n"), of("window = \"off\"\n"));
    let weak = [
        ("des-cbc", Some("hmac-sha1-96"), [8, 20]),
        ("3des-cbc", Some("hmac-sha256-128"), [24, 32]),
        ("aes128-cbc", Some("hmac-md5-96"), [16, 16]),
        ("aes128-cbc", Some("none"), [16, 0]),
    ];
    for direction in [Direction::In, Direction::Out] {
        for (algorithm, auth, lengths) in weak {
            let refused = asked(&strict, direction, Esn::Off, algorithm, auth, lengths);
            assert!(matches!(refused, Err(SaError::Legacy { .. })), "{algorithm} {auth:?}");
            let allowed = asked(&lenient, direction, Esn::Off, algorithm, auth, lengths).unwrap();
            assert_eq!(allowed.check(&lenient.tables), Ok(()));
            assert!(matches!(allowed.check(&strict.tables), Err(SaError::Legacy { .. })));
        }
        let strong = asked(&strict, direction, Esn::On, "aes128-gcm", None, [20, 0]).unwrap();
        let outcome = asked(&off, direction, Esn::On, "aes128-gcm", None, [20, 0]);
        let wanted = match direction {
            Direction::In => Err(SaError::NoWindow("peer".to_owned())),
            // The window is the peer's.
            Direction::Out => Ok(()),
        };
        assert_eq!((outcome.map(|_| ()), strong.check(&off.tables)), (wanted.clone(), wanted));
        assert_eq!(asked(&off, direction, Esn::Off, "aes128-gcm", None, [20, 0]).map(|_| ()), Ok(()));
    }
}

/// Numbers that are used up: what does not leave is refused, not sent, and takes nothing from a lifetime.
#[test]
fn what_has_no_number_is_not_counted_as_sent() {
    let key = format!("key = \"{}\"\n", KEYS[0]);
    for way in [Way::Run, Way::Step] {
        for (bounds, left) in
            [("", 2), ("hard = { packets = 4 }\n", 2), ("soft = { packets = 4 }\n", 1), ("", 0)]
        {
            let text = site(1, 2, Outer::V4, "").replace(&key, &format!("{key}{bounds}"));
            let mut near = Gateway::new(&text, way);
            near.shard.sas.outbound(0).unwrap().sequence.raise(u64::from(u32::MAX) - left);
            let mut random = Random::new(8);
            let frames: Vec<Vec<u8>> = (0..6).map(|_| packet(1, 2, 40, &mut random)).collect();
            let out = through(&mut near, LAN, &frames);
            assert_eq!(out.sent.len() as u64, left);
            let refused = Verdict::Dropped(Reason::EspSequence);
            assert_eq!(out.ended.iter().filter(|(_, verdict)| *verdict == refused).count() as u64, 6 - left);
            let views = near.shard.sas.views(START);
            let view = views.iter().find(|view| view.direction == Direction::Out).unwrap();
            let text =
                u64::from(out.sent.first().map_or(0, |sent| sent.bytes.len() as u16 - 14 - 20 - 8 - 8 - 16));
            assert_eq!((view.packets, view.bytes, view.number), (left, left * text, u32::MAX.into()));
            assert_eq!((view.counter("sequence"), view.counter("expired")), (Some(6 - left), Some(0)));
            assert_eq!(view.reached, None);
        }
    }
}

/// A lifetime in time may end between two packets: the first that it refuses tells of it.
#[test]
fn a_packet_that_a_lifetime_refuses_tells_of_it() {
    let mut far = Gateway::new(&site(2, 1, Outer::V4, ""), Way::Run);
    let mut random = Random::new(14);
    let packets = [(); 2].map(|()| packet(2, 1, 40, &mut random));
    let outer = through(&mut far, LAN, &packets).sent;
    let key = format!("key = \"{}\"\n", KEYS[1]);
    let bounded = site(1, 2, Outer::V4, "").replace(&key, &format!("{key}hard = {{ time = \"1s\" }}\n"));
    for way in [Way::Run, Way::Step] {
        let mut near = Gateway::new(&bounded, way);
        let told = [0, 1_500].map(|millis| {
            let bytes = outer[usize::from(millis > 0)].bytes.clone();
            near.receive(&[Arrival {
                port: PortId(WAN),
                at: START + Nanos::from_millis(millis),
                number: 0,
                bytes,
            }]);
            near.shard.sas.take_events().map(|event| event.news).collect::<Vec<_>>()
        });
        let bound = SaNews::Bound { direction: Direction::In, spi: 0x1001, bound: Bound::Hard };
        assert_eq!(told, [vec![], vec![bound]]);
    }
}

/// The time of an association that is added begins then, without a reload.
#[test]
fn the_time_of_one_that_is_added_runs() {
    let [mut near, mut far] =
        [site(1, 2, Outer::V4, ""), site(2, 1, Outer::V4, "")].map(|text| Gateway::new(&text, Way::Run));
    let mut random = Random::new(15);
    let second = |of: Lifetime| Lifetime { time: Some(Nanos::from_secs(1)), ..of };
    let hard = second(Lifetime::UNBOUNDED);
    let out = addition(&near, Direction::Out, 0x3000, 7).living(Lifetime::UNBOUNDED, hard);
    let inward = addition(&far, Direction::In, 0x3000, 7).living(Lifetime::UNBOUNDED, hard);
    change(&mut near, out.prepare()).unwrap();
    change(&mut far, inward.prepare()).unwrap();
    let sealed: Vec<Vec<u8>> = through(&mut near, LAN, &[(); 2].map(|()| packet(1, 2, 40, &mut random)))
        .sent
        .into_iter()
        .map(|sent| sent.bytes)
        .collect();
    assert_eq!(through(&mut far, WAN, &sealed[..1]).sent.len(), 1);
    let at = START + Nanos::from_millis(1_500);
    for (gateway, port, bytes) in
        [(&mut near, LAN, packet(1, 2, 40, &mut random)), (&mut far, WAN, sealed[1].clone())]
    {
        gateway.receive(&[Arrival { port: PortId(port), at, number: 0, bytes }]);
        let verdicts: Vec<Verdict> =
            gateway.out(usize::MAX).ended.iter().map(|(_, verdict)| *verdict).collect();
        assert_eq!(verdicts, [Verdict::Dropped(Reason::SaExpired)]);
    }
}
