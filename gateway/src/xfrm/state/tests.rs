use ::policy::model::Binding;
use proptest::prelude::{any, prop, proptest};

use super::super::association::Numbers;
use super::super::message::{
    AF_INET, Bound, Policy, PolicyDirection, PolicyId, Selector, Template, attribute,
};
use super::super::parse::parse;
use super::super::parse::tests::{asked, bytes_of, recorded};
use super::*;

/// Data plane that notes what it is told.
#[derive(Default)]
struct Noted {
    told: Vec<String>,
    usage: Usage,
    refuses: bool,
}

/// Destinations of selectors, and what else there is to the protection.
fn packets(protected: &Protected) -> String {
    let each = protected.packets.iter().map(|selector| {
        let net = selector.destination.ip(selector.family).unwrap();
        format!(" to {net}/{}", selector.destination_len)
    });
    let words = [(protected.stands_by, " stands by"), (protected.per_cpu, " per CPU")];
    each.chain(words.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word.to_owned())).collect()
}

impl Carrier for Noted {
    fn add(&mut self, association: &Arc<Association>, protected: &Protected) -> Result<(), Refusal> {
        let cpu = association.cpu.map(|cpu| format!(" of CPU {cpu}")).unwrap_or_default();
        self.told.push(format!("add {:x}{cpu}{}", association.spi, packets(protected)));
        if self.refuses { Err(Refusal::new(Errno::NOENT, "no tunnel")) } else { Ok(()) }
    }

    fn change(
        &mut self,
        old: &Association,
        new: &Arc<Association>,
        protected: &Protected,
    ) -> Result<(), Refusal> {
        assert_eq!((old.spi, old.cpu), (new.spi, new.cpu));
        self.told.push(format!("change {:x}{}", new.spi, packets(protected)));
        Ok(())
    }

    fn remove(&mut self, associations: &[&Association]) {
        self.told.extend(associations.iter().map(|association| format!("remove {:x}", association.spi)));
    }

    fn usage(&mut self, _: &Association) -> Usage {
        self.usage
    }
}

/// Databases with their data plane, and what came of them.
struct Scene {
    database: Database,
    carrier: Noted,
    events: Vec<Event>,
    now: Moment,
}

const LIMITS: Limits = Limits { sas: 8, policies: 4 };

impl Scene {
    fn new() -> Scene {
        let now = Moment { elapsed: Duration::from_secs(1000), wall: 1_800_000_000 };
        Scene { database: Database::new(LIMITS), carrier: Noted::default(), events: Vec::new(), now }
    }

    fn ask(&mut self, (header, request): (Header, Request)) -> Result<Answer, Refusal> {
        self.database.handle(&header, request, self.now, &mut self.carrier, &mut self.events)
    }

    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.carrier.told)
    }

    /// Types of the events since the last question, with their groups.
    fn events(&mut self) -> Vec<(Group, u16)> {
        let kind = |event: &Event| (event.group, u16::from_ne_bytes([event.message[4], event.message[5]]));
        std::mem::take(&mut self.events).iter().map(kind).collect()
    }

    fn one(&mut self, asked: (Header, Request)) -> Sa {
        let Answer::One(message) = self.ask(asked).unwrap() else { panic!() };
        read_sa(&message)
    }

    fn list(&mut self, asked: (Header, Request)) -> Vec<Datagram> {
        let Answer::List(mut list) = self.ask(asked).unwrap() else { panic!() };
        let mut all = Vec::new();
        while let Some(datagram) = self.database.next(&mut list, self.now, &mut self.carrier) {
            all.push(datagram);
        }
        all
    }

    fn pass(&mut self, seconds: u64) {
        self.now.elapsed += Duration::from_secs(seconds);
        self.now.wall += seconds;
        self.database.expire(self.now, &mut self.carrier, &mut self.events);
    }
}

/// Reads an SA of an answer, as if it were a request.
fn read_sa(message: &[u8]) -> Sa {
    let mut message = message.to_vec();
    message[6] |= 1;
    match parse(&message).next().unwrap().1.unwrap() {
        Request::NewSa(sa) => *sa,
        other => panic!("{other:?}"),
    }
}

const GCM: &str = "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000";

fn errno<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Errno {
    result.unwrap_err().errno
}

#[test]
fn an_association_comes_is_shown_and_goes() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(asked(GCM)), Ok(Answer::Done));
    assert_eq!((scene.told(), scene.events()), (vec!["add 1000".into()], vec![(Group::Sa, kind::NEWSA)]));
    assert_eq!(errno(scene.ask(asked(GCM))), Errno::EXIST);
    scene.carrier.usage = Usage {
        bytes: 5000,
        packets: 50,
        since_first: Some(Duration::from_secs(30)),
        since_last: Some(Duration::from_secs(2)),
        numbers: Numbers { sent: 50, received: 0 },
        failures: [1, 2, 3],
    };
    let sa = scene.one(asked("ip xfrm state get"));
    let used = Used { bytes: 5000, packets: 50, added: 1_800_000_000, first: 1_800_000_000 - 30 };
    assert_eq!((sa.info.used, sa.info.failures, sa.last_used), (used, [1, 2, 3], Some(1_800_000_000 - 2)));
    assert_eq!(sa.esn.as_ref().unwrap().sent, 50);
    // The daemon gives the SA anew with the key of this answer when an address changes.
    let Request::NewSa(given) = asked(GCM).1 else { panic!() };
    assert_eq!(sa.aead, given.aead);
    assert_eq!(scene.ask(asked("ip xfrm state delete")), Ok(Answer::Done));
    assert_eq!((scene.told(), scene.events()), (vec!["remove 1000".into()], vec![(Group::Sa, kind::DELSA)]));
    assert_eq!(errno(scene.ask(asked("ip xfrm state delete"))), Errno::SRCH);
    assert_eq!(errno(scene.ask(asked("ip xfrm state get"))), Errno::SRCH);
}

#[test]
fn charon_fills_an_allocated_spi() {
    let mut scene = Scene::new();
    let larval = scene.one(asked("charon gcm ALLOCSPI"));
    assert!((0xc000_0000..=0xcfff_ffff).contains(&larval.info.id.spi));
    assert_eq!(larval.info.id.destination, Address::from(std::net::IpAddr::from([192, 0, 2, 1])));
    let (header, request) = asked("charon gcm UPDSA");
    let Request::UpdateSa(mut sa) = request else { panic!() };
    assert_eq!(errno(scene.ask((header, Request::UpdateSa(sa.clone())))), Errno::SRCH);
    sa.info.id.spi = larval.info.id.spi;
    assert_eq!(scene.ask((header, Request::UpdateSa(sa.clone()))), Ok(Answer::Done));
    assert_eq!(scene.told(), [format!("add {:x}", sa.info.id.spi)]);
    assert_eq!(scene.events(), [(Group::Sa, kind::UPDSA)]);
    // Again: bounds and ports may change, keys may not.
    let mut changed = sa.clone();
    changed.info.lifetimes.added = [5, 6];
    assert_eq!(scene.ask((header, Request::UpdateSa(changed.clone()))), Ok(Answer::Done));
    assert_eq!(scene.told(), [format!("change {:x}", sa.info.id.spi)]);
    changed.aead.as_mut().unwrap().key = wire::esp::Secret::new([9; 20].into());
    assert_eq!(errno(scene.ask((header, Request::UpdateSa(changed)))), Errno::INVAL);
    // Without keys, it is forgotten in the end, and the daemon told.
    scene.events();
    let larval = scene.one(asked("charon gcm ALLOCSPI"));
    scene.pass(3);
    assert_eq!(scene.database.associations(), 2);
    scene.now.elapsed += Duration::from_secs(162);
    scene.pass(0);
    // The first is gone by its hard bound of 6 seconds, too.
    assert_eq!(scene.database.associations(), 0);
    assert_eq!(scene.told(), [format!("remove {:x}", sa.info.id.spi)]);
    let _ = larval;
}

#[test]
fn spis_are_drawn_until_none_is_left() {
    let mut scene = Scene::new();
    let Request::NewSa(keyed) = asked(GCM).1 else { panic!() };
    let (header, request) = asked("ip xfrm state allocspi");
    let Request::AllocSpi(mut asked) = request else { panic!() };
    (asked.min, asked.max) = (0, 0x101);
    let mut ask = |asked: &AllocSpi| scene.ask((header, Request::AllocSpi(Box::new(asked.clone()))));
    let mut drawn = Vec::new();
    for _ in 0..2 {
        let Answer::One(message) = ask(&asked).unwrap() else { panic!() };
        drawn.push(read_sa(&message).info.id.spi);
    }
    drawn.sort_unstable();
    assert_eq!(drawn, [0x100, 0x101], "those below are reserved");
    assert_eq!(errno(ask(&asked)), Errno::NOENT);
    (asked.min, asked.max) = (0, 0xff);
    assert_eq!(errno(ask(&asked)), Errno::NOENT);
    (asked.min, asked.max) = (7, 6);
    assert_eq!(errno(ask(&asked)), Errno::INVAL);
    asked.sa.aead = keyed.aead;
    (asked.min, asked.max) = (0x200, 0x200);
    let Answer::One(message) = ask(&asked).unwrap() else { panic!() };
    assert_eq!((read_sa(&message).info.id.spi, read_sa(&message).aead), (0x200, None));
    asked.sa.info.id.protocol = 51;
    assert_eq!(errno(ask(&asked)), Errno::PROTONOSUPPORT);
    asked.sa.info.id.protocol = 50;
    (asked.min, asked.max) = (0, u32::MAX);
    for _ in 3..LIMITS.sas {
        ask(&asked).unwrap();
    }
    assert_eq!(errno(ask(&asked)), Errno::NOBUFS);
}

#[test]
fn what_the_data_plane_refuses_is_not_kept() {
    let mut scene = Scene::new();
    scene.carrier.refuses = true;
    assert_eq!(errno(scene.ask(asked(GCM))), Errno::NOENT);
    assert_eq!((scene.database.associations(), scene.events()), (0, vec![]));
    // Nor is one that it is not even asked for.
    let (header, request) = asked(GCM);
    let Request::NewSa(mut sa) = request else { panic!() };
    sa.aead.as_mut().unwrap().name = "rfc9999".to_owned();
    scene.told();
    assert_eq!(errno(scene.ask((header, Request::NewSa(sa)))), Errno::NOSYS);
    assert!(scene.told().is_empty());
}

#[test]
fn lists_are_whole_and_without_keys() {
    let mut scene = Scene::new();
    let (header, request) = asked(GCM);
    let Request::NewSa(mut sa) = request else { panic!() };
    for spi in 0x1000..0x1008 {
        sa.info.id.spi = spi;
        scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    }
    let datagrams = scene.list(asked("ip xfrm state list"));
    let (last, parts) = datagrams.split_last().unwrap();
    assert_eq!(u16::from_ne_bytes([last[4], last[5]]), 3, "the end of the list");
    assert!(parts.len() > 1 && parts.iter().all(|part| part.len() <= 4096));
    let key = sa.aead.as_ref().unwrap().key.expose();
    let mut spis = Vec::new();
    for part in parts {
        assert!(!part.windows(4).any(|bytes| bytes == &key[4..8]), "a key is in a list");
        let mut rest = &part[..];
        while !rest.is_empty() {
            let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
            assert_eq!(u16::from_ne_bytes([rest[6], rest[7]]), 2, "one of several");
            spis.push(read_sa(&rest[..length]).info.id.spi);
            rest = &rest[length.next_multiple_of(4)..];
        }
    }
    assert_eq!(spis, (0x1000..0x1008).collect::<Vec<u32>>());
    // Events have none either.
    let events = std::mem::take(&mut scene.events);
    assert_eq!(events.len(), 8);
    assert!(!events.iter().any(|event| event.message.windows(4).any(|bytes| bytes == &key[4..8])));
    // Of another protocol, and of other ends.
    let list = |scene: &mut Scene, filter| scene.list((header, Request::ListSas(filter))).len();
    assert_eq!(list(&mut scene, SaFilter { protocol: 51, ends: None }), 1);
    let ends = |last, len| super::super::message::EndFilter {
        destination: Address::from(std::net::IpAddr::from([192, 0, 2, last])),
        destination_len: len,
        ..Default::default()
    };
    assert_eq!(list(&mut scene, SaFilter { protocol: 0, ends: Some(ends(3, 32)) }), 1);
    assert!(list(&mut scene, SaFilter { protocol: 0, ends: Some(ends(3, 31)) }) > 1);
}

#[test]
fn policies_by_selector_and_number() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(asked("ip xfrm policy add")), Ok(Answer::Done));
    assert_eq!(errno(scene.ask(asked("ip xfrm policy add"))), Errno::EXIST);
    assert_eq!(scene.ask(asked("ip xfrm policy update")), Ok(Answer::Done));
    assert_eq!(scene.events(), [(Group::Policy, kind::NEWPOLICY), (Group::Policy, kind::UPDPOLICY)]);
    let indices: Vec<_> =
        scene.database.policies().map(|policy| (policy.info.index, policy.info.direction)).collect();
    assert_eq!(indices, [(9, PolicyDirection::Out), (16, PolicyDirection::In)]);
    // Of the same selector, without the protocol.
    assert_eq!(errno(scene.ask(asked("ip xfrm policy get"))), Errno::NOENT);
    assert_eq!(scene.list(asked("ip xfrm policy list")).len(), 2);
    let Answer::One(info) = scene.ask(asked("ip xfrm policy count")).unwrap() else { panic!() };
    let counts: Vec<u32> =
        info[24..36].chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(counts, [1, 1, 0]);
    assert_eq!(scene.ask(asked("ip xfrm policy delete index 9")), Ok(Answer::Done));
    assert_eq!(errno(scene.ask(asked("ip xfrm policy delete index 9"))), Errno::NOENT);
    // An update of one that is not there adds it, and there are no more than may be.
    for name in ["charon gcm UPDPOLICY", "charon esn NEWPOLICY 1", "charon esn NEWPOLICY 3"] {
        scene.ask(asked(name)).unwrap();
    }
    assert_eq!(errno(scene.ask(asked("charon esn NEWPOLICY 2"))), Errno::NOBUFS);
    scene.events();
    assert_eq!(scene.ask(asked("charon esn DELPOLICY")), Ok(Answer::Done));
    assert_eq!(scene.ask(asked("ip xfrm policy flush")), Ok(Answer::Done));
    assert_eq!(scene.events(), [(Group::Policy, kind::DELPOLICY), (Group::Policy, kind::FLUSHPOLICY)]);
    assert_eq!(scene.database.policies().count(), 0);
}

#[test]
fn bounds_are_told_once_and_end_an_association() {
    let mut scene = Scene::new();
    scene.ask(asked("ip xfrm state add src 2001:db8::1")).unwrap();
    scene.told();
    scene.events();
    scene.pass(99);
    assert_eq!(scene.events(), []);
    scene.pass(1);
    assert_eq!(scene.events(), [(Group::Expire, kind::EXPIRE)]);
    scene.pass(1);
    assert_eq!(scene.events(), []);
    scene.carrier.usage.bytes = 2000;
    scene.pass(1);
    let hard = scene.events[0].message[16 + 224];
    assert_eq!((hard, scene.told()), (1, vec!["remove 2000".into()]));
    assert_eq!(scene.events(), [(Group::Expire, kind::EXPIRE), (Group::Sa, kind::DELSA)]);
    assert_eq!(scene.database.associations(), 0);
}

#[test]
fn an_association_asks_for_another_before_its_numbers_end() {
    let mut scene = Scene::new();
    scene.ask(asked(GCM)).unwrap();
    scene.events();
    scene.carrier.usage.numbers.sent = u64::from(u32::MAX) - (1 << 20) - 1;
    scene.pass(1);
    assert_eq!(scene.events(), []);
    scene.carrier.usage.numbers.sent += 1;
    scene.pass(1);
    assert_eq!(scene.events(), [(Group::Expire, kind::EXPIRE)]);
}

#[test]
fn a_packet_asks_for_an_association_once() {
    let mut scene = Scene::new();
    scene.ask(asked("ip xfrm policy add")).unwrap();
    scene.ask(asked("ip xfrm policy update")).unwrap();
    scene.events();
    let Request::NewPolicy(policy) = asked("ip xfrm policy add").1 else { panic!() };
    let packet = policy.info.selector;
    let Template { id, source, reqid, family, .. } = policy.templates[0];
    let [local, remote] = [source, id.destination].map(|end| end.ip(family).unwrap());
    let tunnel = Binding::IfId(policy.if_id.unwrap());
    let needed = |scene: &mut Scene, tunnel, packet: &Selector| {
        scene.database.needed(&tunnel, packet, None, scene.now, &mut scene.events);
        scene.events()
    };
    let told = [(Group::Acquire, kind::ACQUIRE)];
    assert_eq!(needed(&mut scene, tunnel, &packet), told);
    assert_eq!(needed(&mut scene, tunnel, &packet), []);
    scene.pass(30);
    // Neither another tunnel's, one between the same ends among them, nor other packets.
    assert_eq!(needed(&mut scene, Binding::Ends(local, Some(remote)), &packet), []);
    assert_eq!(needed(&mut scene, Binding::Reqid(reqid + 1), &packet), []);
    assert_eq!(needed(&mut scene, Binding::IfId(reqid), &packet), []);
    let wider = Selector { source_len: packet.source_len - 1, ..packet };
    assert_eq!(needed(&mut scene, tunnel, &wider), []);
    assert_eq!(needed(&mut scene, Binding::Reqid(reqid), &packet), told);
    // There is one now; when it goes the need is told at once.
    scene.ask(asked(GCM)).unwrap();
    scene.events();
    assert_eq!(needed(&mut scene, tunnel, &packet), told);
}

/// Processor in a message, as the attribute that it ends with.
fn last_cpu(message: &[u8]) -> Option<u32> {
    let (rest, number) = message.split_last_chunk::<4>()?;
    let is_cpu = rest.ends_with(&[8, 0, attribute::SA_PCPU as u8, 0]);
    is_cpu.then(|| u32::from_ne_bytes(*number))
}

/// The processor of an association is kept from the allocation of its SPI on, and told wherever Linux tells it.
#[test]
fn an_association_may_be_of_one_processor() {
    let mut scene = Scene::new();
    let (header, Request::AllocSpi(mut alloc)) = asked("charon gcm ALLOCSPI") else { panic!() };
    alloc.sa.cpu = Some(3);
    let larval = scene.one((header, Request::AllocSpi(alloc.clone())));
    assert_eq!(larval.cpu, Some(3));
    let (header, Request::NewSa(mut sa)) = asked(GCM) else { panic!() };
    (sa.info.id, sa.info.source, sa.info.family) = (larval.info.id, larval.info.source, larval.info.family);
    sa.cpu = Some(3);
    scene.ask((header, Request::UpdateSa(sa.clone()))).unwrap();
    let spi = sa.info.id.spi;
    assert_eq!(scene.told(), [format!("add {spi:x} of CPU 3")]);
    assert_eq!(last_cpu(&scene.events.remove(0).message), Some(3));
    let name = sa.info.name();
    assert_eq!(scene.one((header, Request::GetSa(name))).cpu, Some(3));
    let listed = scene.list((header, Request::ListSas(SaFilter::default())));
    assert_eq!(read_sa(&listed[0]).cpu, Some(3));
    let ae = Ae { sa: name, ..Ae::default() };
    let Answer::One(told) = scene.ask((header, Request::GetAe(Box::new(ae)))).unwrap() else { panic!() };
    assert_eq!(last_cpu(&told), Some(3));
    // As Linux has it, a later message changes no processor.
    sa.cpu = None;
    sa.info.lifetimes.added = [1, 0];
    scene.ask((header, Request::UpdateSa(sa.clone()))).unwrap();
    assert_eq!(scene.told(), [format!("change {spi:x}")]);
    assert_eq!(scene.one((header, Request::GetSa(name))).cpu, Some(3));
    scene.events();
    scene.pass(2);
    assert_eq!(last_cpu(&scene.events.remove(0).message), Some(3));
    scene.ask((header, Request::DeleteSa(name))).unwrap();
    assert_eq!(scene.events.iter().filter(|event| last_cpu(&event.message) == Some(3)).count(), 1);
    // Of no machine.
    alloc.sa.cpu = Some(65_536);
    assert_eq!(errno(scene.ask((header, Request::AllocSpi(alloc)))), Errno::RANGE);
    sa.cpu = Some(u32::MAX);
    assert_eq!(errno(scene.ask((header, Request::NewSa(sa)))), Errno::RANGE);
}

/// Each processor that has only the association of all asks for its own, once, where the policy asks for that.
#[test]
fn processors_ask_for_associations_of_their_own() {
    let mut scene = Scene::new();
    let (header, Request::NewPolicy(mut policy)) = asked("ip xfrm policy add") else { panic!() };
    let (_, Request::NewSa(mut sa)) = asked(GCM) else { panic!() };
    let Template { id, source, reqid, .. } = policy.templates[0];
    (sa.info.id.destination, sa.info.source, sa.info.reqid) = (id.destination, source, reqid);
    let tunnel = Binding::IfId(policy.if_id.unwrap());
    let packet = policy.info.selector;
    let needed = |scene: &mut Scene, cpu| {
        scene.events.clear();
        scene.database.needed(&tunnel, &packet, cpu, scene.now, &mut scene.events);
        let told = scene.events.first().map(|event| last_cpu(&event.message));
        scene.events().iter().for_each(|told| assert_eq!(*told, (Group::Acquire, kind::ACQUIRE)));
        told
    };
    scene.ask((header, Request::NewPolicy(policy.clone()))).unwrap();
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    let net = packets(&Protected { packets: vec![packet], ..Protected::default() });
    assert_eq!(scene.told(), [format!("add 1000{net}")]);
    assert_eq!(needed(&mut scene, Some(1)), None);
    policy.info.flags |= 4;
    scene.ask((header, Request::UpdatePolicy(policy.clone()))).unwrap();
    assert_eq!(scene.told(), [format!("change 1000{net} per CPU")]);
    assert_eq!(needed(&mut scene, Some(1)), Some(Some(1)));
    assert_eq!(needed(&mut scene, Some(0)), Some(Some(0)));
    assert_eq!([needed(&mut scene, Some(1)), needed(&mut scene, Some(0))], [None, None]);
    // Without any there is need of one of all.
    assert_eq!([needed(&mut scene, None), needed(&mut scene, None)], [Some(None), None]);
    // One of theirs, and what it is not for.
    (sa.info.id.spi, sa.cpu) = (0x1001, Some(1));
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    // It waits for its peer while there is one of all.
    assert_eq!(scene.told(), [format!("add 1001 of CPU 1{net} stands by per CPU")]);
    scene.now.elapsed += Duration::from_millis(999);
    scene.pass(0);
    assert_eq!(scene.told(), Vec::<String>::new());
    scene.pass(1);
    assert_eq!(scene.told(), [format!("change 1001{net} per CPU")]);
    scene.pass(1);
    assert_eq!(scene.told(), Vec::<String>::new());
    assert_eq!([needed(&mut scene, Some(0)), needed(&mut scene, None)], [None, None]);
    assert_eq!(needed(&mut scene, Some(1)), Some(Some(1)));
    let own_policy = policy.clone();
    scene.pass(30);
    assert_eq!(needed(&mut scene, Some(0)), Some(Some(0)));
    policy.info.flags = 0;
    scene.ask((header, Request::UpdatePolicy(policy))).unwrap();
    assert_eq!(scene.told(), [format!("change 1000{net}"), format!("change 1001{net}")]);
    assert_eq!(needed(&mut scene, Some(2)), None);
    // Beside none that its processor could send by it does not wait.
    let mut scene = Scene::new();
    scene.ask((header, Request::NewPolicy(own_policy.clone()))).unwrap();
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    sa.info.id.spi = 0x1002;
    sa.cpu = Some(2);
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    let each = [format!("add 1001 of CPU 1{net} per CPU"), format!("add 1002 of CPU 2{net} per CPU")];
    assert_eq!(scene.told(), each);
    // In a rekeying the old one goes on meanwhile, whatever policies say.
    sa.info.id.spi = 0x1003;
    scene.ask((header, Request::NewSa(sa))).unwrap();
    assert_eq!(scene.told(), [format!("add 1003 of CPU 2{net} stands by per CPU")]);
    scene.ask((header, Request::UpdatePolicy(own_policy))).unwrap();
    assert_eq!(scene.told(), Vec::<String>::new());
    scene.pass(1);
    assert_eq!(scene.told(), [format!("change 1003{net} per CPU")]);
}

#[test]
fn policies_say_what_an_association_protects() {
    let mut scene = Scene::new();
    let (header, Request::NewSa(mut sa)) = asked(GCM) else { panic!() };
    let Request::NewPolicy(policy) = asked("ip xfrm policy add").1 else { panic!() };
    let Template { id, source, reqid, .. } = policy.templates[0];
    (sa.info.id.destination, sa.info.source, sa.info.reqid) = (id.destination, source, reqid);
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    assert_eq!(scene.told(), ["add 1000"]);
    scene.ask((header, Request::NewPolicy(policy.clone()))).unwrap();
    let net = |selector: &Selector| packets(&Protected { packets: vec![*selector], ..Protected::default() });
    let first = net(&policy.info.selector);
    assert_eq!(scene.told(), [format!("change 1000{first}")]);
    // Nothing new.
    scene.ask((header, Request::UpdatePolicy(policy.clone()))).unwrap();
    assert_eq!(scene.told(), Vec::<String>::new());
    let mut other = policy.clone();
    other.info.selector.destination = Address::from(std::net::IpAddr::from([10, 99, 0, 0]));
    let second = net(&other.info.selector);
    scene.ask((header, Request::NewPolicy(other.clone()))).unwrap();
    assert_eq!(scene.told(), [format!("change 1000{first}{second}")]);
    // Of another number, or the other way round.
    let mut foreign = other.clone();
    (foreign.info.selector.source_len, foreign.templates[0].reqid) = (9, reqid + 1);
    scene.ask((header, Request::NewPolicy(foreign))).unwrap();
    let mut inward = other.clone();
    inward.info.direction = PolicyDirection::In;
    (inward.templates[0].source, inward.templates[0].id.destination) = (id.destination, source);
    scene.ask((header, Request::NewPolicy(inward))).unwrap();
    assert_eq!(scene.told(), Vec::<String>::new());
    // The next one has them from its beginning.
    sa.info.id.spi = 0x1001;
    scene.ask((header, Request::NewSa(sa))).unwrap();
    assert_eq!(scene.told(), [format!("add 1001{first}{second}")]);
    let id_of = |policy: &Policy| {
        let (selector, direction) = (policy.info.selector, policy.info.direction);
        let (mark, if_id) = (policy.mark, policy.if_id);
        Request::DeletePolicy(Box::new(PolicyId { selector, index: 0, direction, mark, if_id }))
    };
    scene.ask((header, id_of(&policy))).unwrap();
    assert_eq!(scene.told(), [format!("change 1000{second}"), format!("change 1001{second}")]);
    // Without the last one it protects what that said, and not everything.
    scene.ask((header, id_of(&other))).unwrap();
    assert_eq!(scene.told(), Vec::<String>::new());
}

/// strongSwan's responder of a rekeying adds the outbound association before its peer can receive by it, and names it in the policy
/// once it can.
#[test]
fn an_association_stands_by_while_policies_name_another_one() {
    let mut scene = Scene::new();
    let (header, Request::NewSa(mut sa)) = asked(GCM) else { panic!() };
    let Request::NewPolicy(mut policy) = asked("ip xfrm policy add").1 else { panic!() };
    let Template { id, source, reqid, .. } = policy.templates[0];
    (sa.info.id.destination, sa.info.source, sa.info.reqid) = (id.destination, source, reqid);
    let named = |policy: &Policy, spi| {
        let mut named = policy.clone();
        named.templates[0].id.spi = spi;
        named
    };
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    *policy = named(&policy, 0x1000);
    scene.ask((header, Request::NewPolicy(policy.clone()))).unwrap();
    let net = packets(&Protected { packets: vec![policy.info.selector], ..Protected::default() });
    assert_eq!(scene.told(), ["add 1000".to_owned(), format!("change 1000{net}")]);
    sa.info.id.spi = 0x1001;
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    assert_eq!(scene.told(), ["add 1001 stands by"]);
    // The new one first, so that there is one at all times.
    scene.ask((header, Request::UpdatePolicy(Box::new(named(&policy, 0x1001))))).unwrap();
    assert_eq!(scene.told(), [format!("change 1001{net}"), format!("change 1000{net} stands by")]);
    // Two rekeyings at once: the other one wins.
    scene.ask((header, Request::UpdatePolicy(Box::new(named(&policy, 0x1000))))).unwrap();
    assert_eq!(scene.told(), [format!("change 1000{net}"), format!("change 1001{net} stands by")]);
    // Any of them.
    scene.ask((header, Request::UpdatePolicy(Box::new(named(&policy, 0))))).unwrap();
    assert_eq!(scene.told(), [format!("change 1001{net}")]);
    // What comes in does not wait, whatever policies name.
    let mut inward = named(&policy, 0x2000);
    inward.info.direction = PolicyDirection::In;
    (inward.templates[0].source, inward.templates[0].id.destination) = (id.destination, source);
    scene.ask((header, Request::NewPolicy(Box::new(inward)))).unwrap();
    (sa.info.id.destination, sa.info.source, sa.info.id.spi) = (source, id.destination, 0x2001);
    scene.ask((header, Request::NewSa(sa))).unwrap();
    assert_eq!(scene.told(), ["add 2001"]);
}

/// Linux takes the packet's own addresses, and so does strongSwan, whose templates have none.
#[test]
fn policies_of_transport_mode_are_for_the_ends_that_their_selectors_have() {
    let mut scene = Scene::new();
    let (header, Request::NewSa(mut sa)) = asked(GCM) else { panic!() };
    let Request::NewPolicy(mut policy) = asked("ip xfrm policy add").1 else { panic!() };
    let Template { id, source, family, reqid, .. } = policy.templates[0];
    (sa.info.id.destination, sa.info.source, sa.info.reqid, sa.info.mode) =
        (id.destination, source, reqid, 0);
    (sa.if_id, policy.if_id) = (None, None);
    let len = if family == AF_INET { 32 } else { 128 };
    let own = &mut policy.info.selector;
    (own.family, own.source, own.source_len) = (family, source, len);
    (own.destination, own.destination_len) = (id.destination, len);
    let packet = *own;
    policy.templates[0] = Template {
        id: super::super::message::Id { destination: Address::default(), spi: 0x1000, ..id },
        source: Address::default(),
        mode: 0,
        ..policy.templates[0]
    };
    let binding = Binding::Ends(source.ip(family).unwrap(), id.destination.ip(family));
    scene.ask((header, Request::NewPolicy(policy))).unwrap();
    scene.events();
    scene.database.needed(&binding, &packet, None, scene.now, &mut scene.events);
    let message = scene.events.first().map(|event| event.message.clone()).unwrap();
    assert_eq!(scene.events(), [(Group::Acquire, kind::ACQUIRE)]);
    assert_eq!((&message[16..32], &message[40..56]), (&id.destination.0[..], &source.0[..]));
    let net = packets(&Protected { packets: vec![packet], ..Protected::default() });
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    assert_eq!(scene.told(), [format!("add 1000{net}")]);
    sa.info.id.spi = 0x1001;
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    assert_eq!(scene.told(), ["add 1001 stands by"]);
    // In tunnel mode, and to somebody else.
    (sa.info.id.spi, sa.info.mode) = (0x1002, 1);
    scene.ask((header, Request::NewSa(sa.clone()))).unwrap();
    (sa.info.id.spi, sa.info.mode, sa.info.id.destination) = (0x1003, 0, Address([9; 16]));
    scene.ask((header, Request::NewSa(sa))).unwrap();
    assert_eq!(scene.told(), ["add 1002", "add 1003"]);
}

#[test]
fn the_latest_use_of_a_policy_is_that_of_its_associations() {
    let mut scene = Scene::new();
    let (header, Request::NewSa(mut sa)) = asked(GCM) else { panic!() };
    let Request::NewPolicy(policy) = asked("ip xfrm policy add").1 else { panic!() };
    let Template { id, source, reqid, .. } = policy.templates[0];
    (sa.info.id.destination, sa.info.source, sa.info.reqid) = (id.destination, source, reqid);
    scene.ask((header, Request::NewSa(sa))).unwrap();
    scene.ask((header, Request::NewPolicy(policy.clone()))).unwrap();
    let (selector, direction) = (policy.info.selector, policy.info.direction);
    let get = PolicyId { selector, index: 0, direction, mark: None, if_id: policy.if_id };
    let used = |scene: &mut Scene| {
        let Ok(Answer::One(message)) = scene.ask((header, Request::GetPolicy(Box::new(get)))) else {
            panic!()
        };
        // Its selector, the bounds, bytes, packets and the time of addition come before.
        u64::from_ne_bytes(message[16 + 56 + 64 + 24..][..8].try_into().unwrap())
    };
    assert_eq!(used(&mut scene), 0);
    scene.carrier.usage.since_last = Some(Duration::from_secs(7));
    assert_eq!(used(&mut scene), scene.now.wall - 7);
}

#[test]
fn an_association_ends_by_request_as_by_its_hard_bound() {
    let mut scene = Scene::new();
    scene.ask(asked(GCM)).unwrap();
    scene.told();
    scene.events();
    let Request::DeleteSa(sa) = asked("ip xfrm state delete").1 else { panic!() };
    scene.database.end(&sa, scene.now, &mut scene.carrier, &mut scene.events);
    assert_eq!(scene.told(), ["remove 1000"]);
    assert_eq!(scene.events(), [(Group::Expire, kind::EXPIRE), (Group::Sa, kind::DELSA)]);
    scene.database.end(&sa, scene.now, &mut scene.carrier, &mut scene.events);
    assert_eq!((scene.told(), scene.events()), (vec![], vec![]));
}

#[test]
fn a_peer_that_moves_is_told_of() {
    let mut scene = Scene::new();
    scene.ask(asked("ip xfrm state add src 2001:db8::1")).unwrap();
    scene.events();
    let address: std::net::IpAddr = "2001:db8::1".parse().unwrap();
    let destination = Address::from("2001:db8::2".parse::<std::net::IpAddr>().unwrap());
    let id = super::super::message::Id { destination, spi: 0x2000, protocol: 50 };
    let sa = SaId { id, family: 10 };
    scene.database.moved(&sa, Address::from(address), 1024, &mut scene.events);
    let message = scene.events[0].message.clone();
    assert_eq!(scene.events(), [(Group::Mapping, kind::MAPPING)]);
    assert_eq!(message.len(), 16 + 64);
    assert_eq!(
        (&message[16 + 60..16 + 62], &message[16 + 62..]),
        (&4500_u16.to_be_bytes()[..], &1024_u16.to_be_bytes()[..])
    );
    scene.database.moved(&SaId { family: 2, ..sa }, Address::from(address), 1024, &mut scene.events);
    assert_eq!(scene.events(), []);
}

#[test]
fn numbers_are_set_upwards_only() {
    let mut scene = Scene::new();
    scene.ask(asked(GCM)).unwrap();
    scene.events();
    scene.carrier.usage.numbers.sent = 100;
    let Request::DeleteSa(sa) = asked("ip xfrm state delete").1 else { panic!() };
    let header = Header { kind: kind::NEWAE, flags: 0x105, ..Header::default() };
    let set = |sent: u64| {
        let esn = Some(ReplayEsn { sent, received: 7, window: 64, bitmap: vec![0, 0] });
        (header, Request::NewAe(Box::new(Ae { sa, esn, ..Ae::default() })))
    };
    assert_eq!(errno(scene.ask(set(99))), Errno::INVAL);
    assert_eq!(scene.ask(set(200)), Ok(Answer::Done));
    assert_eq!(
        (scene.told().last().unwrap().as_str(), scene.events()),
        ("change 1000", vec![(Group::Ae, kind::NEWAE)])
    );
    let Answer::One(message) =
        scene.ask((header, Request::GetAe(Box::new(Ae { sa, ..Ae::default() })))).unwrap()
    else {
        panic!()
    };
    let mut again = message.to_vec();
    again[6] |= 1;
    let Some((_, Ok(Request::NewAe(ae)))) = parse(&again).next() else { panic!() };
    assert_eq!((ae.esn.unwrap().sent, ae.used.unwrap().added, ae.sa), (200, 1_800_000_000, sa));
    let without = Header { flags: 5, ..header };
    assert_eq!(errno(scene.ask((without, set(300).1))), Errno::INVAL);
}

#[test]
fn flush_takes_a_protocol() {
    let mut scene = Scene::new();
    scene.ask(asked(GCM)).unwrap();
    let (header, _) = asked("ip xfrm state flush");
    assert_eq!(scene.ask((header, Request::FlushSas(51))), Ok(Answer::Done));
    assert_eq!(scene.database.associations(), 1);
    assert_eq!(scene.ask(asked("ip xfrm state flush")), Ok(Answer::Done));
    assert_eq!(
        (scene.database.associations(), scene.told()),
        (0, vec!["add 1000".into(), "remove 1000".into()])
    );
}

#[test]
fn a_client_may_ask_for_new_associations() {
    let mut scene = Scene::new();
    let Request::NewSa(sa) = asked(GCM).1 else { panic!() };
    scene.ask((Header::default(), Request::Expire(sa, Bound::Soft))).unwrap();
    assert_eq!(scene.events(), [(Group::Expire, kind::EXPIRE)]);
}

#[test]
fn thresholds_are_kept() {
    let mut scene = Scene::new();
    scene.ask(asked("ip xfrm policy set")).unwrap();
    let Answer::One(info) = scene.ask(asked("ip xfrm policy count")).unwrap() else { panic!() };
    assert!(info.windows(6).any(|bytes| bytes == [6, 0, 3, 0, 16, 24]), "{info:?}");
    assert!(info.windows(6).any(|bytes| bytes == [6, 0, 4, 0, 64, 96]), "{info:?}");
}

proptest! {
    /// Recorded requests in any order, with any byte changed: never more than may be, and the data plane has what the database has.
    #[test]
    fn any_requests(steps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..40_u64), 1..60)) {
        let all = recorded();
        let mut scene = Scene::new();
        let mut carried = std::collections::BTreeSet::new();
        for (which, at, to, seconds) in steps {
            let mut bytes = all[which.index(all.len())].1.clone();
            if to > 128 {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            for (header, request) in parse(&bytes) {
                if let Ok(request) = request {
                    let _ = scene.ask((header, request));
                }
            }
            scene.pass(seconds);
            for told in scene.told() {
                let mut words = told.split(' ');
                let (what, spi) = (words.next().unwrap(), words.next().unwrap());
                match what {
                    // The same SPI for another destination is another.
                    "add" => { carried.insert(spi.to_owned()); }
                    "remove" => { carried.remove(spi); }
                    _ => {}
                }
            }
            assert!(scene.database.associations() <= LIMITS.sas);
            assert!(scene.database.policies().count() <= LIMITS.policies);
            let valid: std::collections::BTreeSet<String> = scene.database.sas.iter()
                .filter(|(_, entry)| entry.carried.is_some())
                .map(|(key, _)| format!("{:x}", key.spi)).collect();
            assert!(carried.is_subset(&valid), "{carried:?} {valid:?}");
        }
    }
}

#[test]
fn every_recorded_request_is_understood() {
    let mut scene = Scene::new();
    for (what, bytes) in recorded() {
        for (header, request) in parse(&bytes_of(what)) {
            let answer = scene.ask((header, request.unwrap()));
            let fine = [Errno::SRCH, Errno::NOENT, Errno::EXIST, Errno::NOBUFS];
            assert!(answer.is_ok() || fine.contains(&errno(answer.clone())), "{what}: {answer:?}");
        }
        drop(bytes);
    }
}
