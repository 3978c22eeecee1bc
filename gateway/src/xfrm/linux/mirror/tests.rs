use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use ::policy::model::Binding;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_MULTIPART, NLM_F_REPLACE, NLM_F_REQUEST};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::xfrm::carried::Name;
use crate::xfrm::message::{Address, Policy};
use crate::xfrm::parse::parse;
use crate::xfrm::parse::tests::asked;
use crate::xfrm::state::{Protected, Usage};
use crate::xfrm::write::{Datagram, KeyUse};

const LOCAL: &str = "192.0.2.1";
const PEER: &str = "192.0.2.2";

/// State of a Linux that behaves as net/xfrm/xfrm_user.c does.
#[derive(Default)]
struct State {
    sas: Vec<Sa>,
    policies: Vec<Policy>,
    events: VecDeque<Datagram>,
    /// The receive buffer was full.
    is_lost: bool,
    /// Packets that Linux sends by an association before its numbers are set.
    sends_meanwhile: u32,
    /// Lists that are interrupted.
    interrupts: u32,
    /// Messages told to its daemons.
    told: Vec<String>,
    /// Use that it was told: packets by SPI.
    used: Vec<(u32, u64)>,
}

#[derive(Clone)]
struct Linux {
    state: Arc<Mutex<State>>,
    descriptor: Arc<OwnedFd>,
}

impl Linux {
    fn new() -> Linux {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        Linux { state: Arc::default(), descriptor: Arc::new(descriptor) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn event(&self, message: Datagram) {
        self.state().events.push_back(message);
    }

    /// A daemon's request that succeeds.
    fn add(&self, sa: &Sa) {
        self.remove(&sa.info.name());
        self.state().sas.push(sa.clone());
        self.event(write::sa(&write::event(kind::NEWSA), sa, KeyUse::Shown));
    }

    fn remove(&self, id: &SaId) {
        let mut state = self.state();
        let Some(place) = state.sas.iter().position(|sa| sa.info.name() == *id) else { return };
        let sa = state.sas.remove(place);
        state.events.push_back(write::removed_sa(&sa));
    }

    fn flush(&self) {
        self.state().sas.clear();
        self.event(write::flushed_sas(50));
    }

    fn put(&self, policy: &Policy) {
        let mut state = self.state();
        state.policies.retain(|other| other.info.selector != policy.info.selector);
        state.policies.push(policy.clone());
        state.events.push_back(write::policy(&write::event(kind::UPDPOLICY), policy));
    }

    fn delete(&self, policy: &Policy) {
        let mut state = self.state();
        state.policies.retain(|other| other.info.selector != policy.info.selector);
        state.events.push_back(write::removed_policy(policy));
    }

    /// Last number that it has sent.
    fn sent(&self, spi: u32) -> u64 {
        sent(self.state().sas.iter().find(|sa| sa.info.id.spi == spi).unwrap())
    }
}

/// Whole request of a body, as the parser of requests wants it.
fn whole(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from((16 + body.len() as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend(7_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn number(kind: u16, number: i32, flags: u16) -> Vec<u8> {
    let mut bytes = whole(kind, flags, &number.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

impl Transport for Linux {
    fn renew(&mut self) -> io::Result<()> {
        let mut state = self.state();
        state.events.clear();
        state.is_lost = false;
        Ok(())
    }

    fn event(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let next = {
            let mut state = self.state();
            if std::mem::take(&mut state.is_lost) {
                return Err(Errno::NOBUFS.into());
            }
            state.events.pop_front()
        };
        take(&next.ok_or(io::ErrorKind::WouldBlock)?);
        Ok(())
    }

    fn ask(
        &mut self,
        asked: u16,
        flags: u16,
        body: &[u8],
        take: &mut dyn FnMut(u32, &[u8]) -> bool,
    ) -> io::Result<()> {
        let mut state = self.state();
        let header = |kind| Header { kind, flags: NLM_F_MULTIPART, sequence: 7, port: 0 };
        let answer = |errno: i32| number(2, -errno, 0);
        if flags & NLM_F_DUMP == NLM_F_DUMP {
            let parts: Vec<Datagram> = match asked {
                kind::GETSA => {
                    state.sas.iter().map(|sa| write::sa(&header(kind::NEWSA), sa, KeyUse::Shown)).collect()
                }
                _ => state.policies.iter().map(|own| write::policy(&header(kind::NEWPOLICY), own)).collect(),
            };
            assert!(parts.iter().all(|part| !take(7, part)));
            let is_interrupted = state.interrupts > 0;
            state.interrupts = state.interrupts.saturating_sub(1);
            let done = number(3, 0, NLM_F_MULTIPART | if is_interrupted { 0x10 } else { 0 });
            assert!(take(7, &done));
            return Ok(());
        }
        let bytes = whole(asked, flags, body);
        let found = |state: &State, id: &SaId| state.sas.iter().position(|sa| sa.info.name() == *id);
        let done = match parse(&bytes).next() {
            Some((_, Ok(Request::GetSa(id)))) => match found(&state, &id) {
                None => answer(3),
                Some(place) => {
                    let sa = &state.sas[place];
                    let message = write::sa(&Header { flags: 0, ..header(kind::NEWSA) }, sa, KeyUse::Shown);
                    message.to_vec()
                }
            },
            Some((_, Ok(Request::NewAe(ae)))) => {
                assert_eq!(flags, NLM_F_REPLACE | NLM_F_ACK);
                let meanwhile = state.sends_meanwhile;
                match found(&state, &ae.sa) {
                    None => answer(3),
                    Some(place) => {
                        let sa = &mut state.sas[place];
                        if ae.replay.is_some() || ae.esn.is_some() {
                            sa.info.used.packets += u64::from(meanwhile);
                            assert_eq!(
                                sa.esn.as_ref().map(|esn| esn.bitmap.len()),
                                ae.esn.as_ref().map(|esn| esn.bitmap.len())
                            );
                            (sa.replay, sa.esn) = (ae.replay.or(sa.replay), ae.esn.or(sa.esn.take()));
                        }
                        if let Some(used) = ae.used {
                            sa.info.used = used;
                            state.used.push((ae.sa.id.spi, used.packets));
                        }
                        answer(0)
                    }
                }
            }
            Some((_, Ok(Request::Expire(sa, bound)))) => match found(&state, &sa.info.name()) {
                None => answer(3),
                Some(place) => {
                    state.told.push(format!("{bound:?} {:x}", sa.info.id.spi));
                    let sa = state.sas[place].clone();
                    state.events.push_back(write::expire(&write::event(kind::EXPIRE), &sa, bound));
                    if bound == Bound::Hard {
                        state.sas.remove(place);
                    }
                    answer(0)
                }
            },
            _ if asked == kind::ACQUIRE => {
                state.told.push("ACQUIRE".to_owned());
                answer(0)
            }
            other => panic!("{other:?}"),
        };
        drop(state);
        assert!(take(7, &done));
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Associations that the data plane has, with the last number of Linux's.
#[derive(Clone, Default)]
struct Carrying {
    carried: Arc<Mutex<BTreeMap<u32, (u64, usize)>>>,
    usage: Arc<Mutex<Usage>>,
    has_tunnel: Arc<Mutex<bool>>,
}

impl Carrier for Carrying {
    fn add(&mut self, association: &Arc<Association>, protected: &Protected) -> Result<(), Refusal> {
        let known = self
            .carried
            .lock()
            .unwrap()
            .insert(association.spi, (association.numbers.sent, protected.packets.len()));
        assert_eq!(known, None);
        Ok(())
    }

    fn change(
        &mut self,
        old: &Association,
        new: &Arc<Association>,
        protected: &Protected,
    ) -> Result<(), Refusal> {
        assert_eq!(old.spi, new.spi);
        let mut carried = self.carried.lock().unwrap();
        let own = carried.get_mut(&new.spi).unwrap();
        // Numbers are raised to these, where they are lower.
        *own = (own.0.max(new.numbers.sent), protected.packets.len());
        Ok(())
    }

    fn remove(&mut self, associations: &[&Association]) {
        for association in associations {
            assert!(self.carried.lock().unwrap().remove(&association.spi).is_some());
        }
    }

    fn usage(&mut self, _: &Association) -> Usage {
        *self.usage.lock().unwrap()
    }
}

impl Plane for Carrying {
    fn tunnel_for(&mut self, association: &Association) -> Option<Direction> {
        let local: IpAddr = LOCAL.parse().unwrap();
        if !*self.has_tunnel.lock().unwrap() {
            return None;
        }
        Some(if association.source == local { Direction::Out } else { Direction::In })
    }

    fn as_carrier(&mut self) -> &mut dyn Carrier {
        self
    }
}

struct Scene {
    linux: Linux,
    plane: Carrying,
    mirror: Mirror<Linux>,
}

impl Scene {
    /// A gateway that begins with what is in this Linux.
    fn with(linux: Linux) -> Scene {
        let plane = Carrying::default();
        *plane.has_tunnel.lock().unwrap() = true;
        let limits = Limits { sas: 64, policies: 64 };
        let mut mirror = Mirror::new(limits, linux.clone(), Box::new(plane.clone()));
        mirror.follow();
        Scene { linux, plane, mirror }
    }

    fn new() -> Scene {
        Scene::with(Linux::new())
    }

    /// SPIs, each with the last number of Linux's.
    fn carried(&self) -> Vec<(u32, u64)> {
        self.plane.carried.lock().unwrap().iter().map(|(spi, (sent, _))| (*spi, *sent)).collect()
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.linux.state().told)
    }

    /// Takes over all that Linux tells, lists included.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.mirror.follow();
        }
    }
}

fn address(text: &str) -> Address {
    Address::from(text.parse::<IpAddr>().unwrap())
}

/// Association of the recorded command, with ends and SPI.
fn sa(spi: u32, direction: Direction) -> Sa {
    let Request::NewSa(sa) = asked("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000").1
    else {
        panic!()
    };
    let mut sa = *sa;
    let (source, destination) = if direction == Direction::Out { (LOCAL, PEER) } else { (PEER, LOCAL) };
    (sa.info.source, sa.info.id.destination, sa.info.id.spi) = (address(source), address(destination), spi);
    sa.if_id = None;
    sa
}

/// With extended numbers, and so many sent.
fn extended(spi: u32, sent: u64) -> Sa {
    let mut sa = sa(spi, Direction::Out);
    sa.info.flags |= ESN;
    sa.esn = Some(ReplayEsn { sent, window: 64, bitmap: vec![0; 2], received: 0 });
    sa
}

fn policy(net: u8) -> Policy {
    let Request::NewPolicy(policy) = asked("ip xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 proto tcp").1
    else {
        panic!()
    };
    let mut policy = *policy;
    policy.if_id = None;
    (policy.info.selector.protocol, policy.info.selector.destination_port) = (0, [0; 2]);
    policy.info.selector.destination = address(&format!("10.{net}.0.0"));
    policy.info.index = 8 * u32::from(net) + 1;
    let template = &mut policy.templates[0];
    (template.source, template.id.destination, template.id.spi, template.reqid) =
        (address(LOCAL), address(PEER), 0, 7);
    policy
}

#[test]
fn an_association_is_taken_from_linux_before_it_sends() {
    let mut scene = Scene::new();
    scene.linux.state().sends_meanwhile = 3;
    let mut out = sa(0x2000, Direction::Out);
    // Window without extended numbers, as the recorded one has: only the lower half counts.
    out.esn.as_mut().unwrap().sent = 40;
    scene.linux.add(&out);
    scene.linux.add(&sa(0x1000, Direction::In));
    scene.linux.add(&extended(0x3000, 7 << 32));
    let mut short = sa(0x4000, Direction::Out);
    (short.esn, short.replay) = (None, Some(Replay { sent: 9, received: 0, bitmap: 0 }));
    scene.linux.add(&short);
    scene.settle();
    let behind = 3 * SEGMENTS;
    let expected = [(0x1000, 0), (0x2000, 40 + behind), (0x3000, (7 << 32) + behind), (0x4000, 9 + behind)];
    assert_eq!(scene.carried(), expected);
    let last = u64::from(u32::MAX);
    assert_eq!([0x1000, 0x2000, 0x3000, 0x4000].map(|spi| scene.linux.sent(spi)), [0, last, u64::MAX, last]);
    assert_eq!(scene.told(), Vec::<String>::new());
}

#[test]
fn what_is_older_than_the_gateway_is_asked_for_anew() {
    let linux = Linux::new();
    linux.add(&sa(0x1000, Direction::In));
    linux.add(&sa(0x2000, Direction::Out));
    let mut scene = Scene::with(linux);
    assert_eq!(
        (scene.carried(), scene.told()),
        (vec![], vec!["Soft 1000".to_owned(), "Soft 2000".to_owned()])
    );
    // Linux goes on with them, until the new ones are there.
    assert_eq!(scene.linux.sent(0x2000), 0);
    scene.linux.add(&sa(0x1001, Direction::In));
    scene.linux.add(&sa(0x2001, Direction::Out));
    scene.settle();
    assert_eq!(scene.carried(), [(0x1001, 0), (0x2001, 0)]);
    // One of the same name later is another one.
    scene.linux.remove(&sa(0x1000, Direction::In).info.name());
    scene.linux.add(&sa(0x1000, Direction::In));
    scene.settle();
    assert_eq!(scene.carried(), [(0x1000, 0), (0x1001, 0), (0x2001, 0)]);
}

#[test]
fn numbers_that_another_one_has_used_are_nobodys() {
    let mut scene = Scene::new();
    let mut out = sa(0x2000, Direction::Out);
    out.esn.as_mut().unwrap().sent = u64::from(u32::MAX);
    scene.linux.add(&out);
    scene.linux.add(&extended(0x3000, u64::MAX));
    scene.settle();
    assert_eq!(
        (scene.carried(), scene.told()),
        (vec![], vec!["Soft 2000".to_owned(), "Soft 3000".to_owned()])
    );
    let mut wrapping = sa(0x4000, Direction::Out);
    wrapping.extra_flags = Some(MAY_WRAP);
    scene.linux.add(&wrapping);
    scene.settle();
    assert_eq!((scene.carried(), scene.linux.sent(0x4000)), (vec![], 0));
}

#[test]
fn associations_without_a_tunnel_are_linuxs_own() {
    let mut scene = Scene::new();
    *scene.plane.has_tunnel.lock().unwrap() = false;
    scene.linux.add(&sa(0x2000, Direction::Out));
    let mut larval = sa(0x1000, Direction::In);
    larval.aead = None;
    scene.linux.add(&larval);
    let mut foreign = sa(0x4000, Direction::Out);
    foreign.info.id.protocol = 51;
    scene.linux.add(&foreign);
    scene.settle();
    assert_eq!((scene.carried(), scene.linux.sent(0x2000)), (vec![], 0));
    *scene.plane.has_tunnel.lock().unwrap() = true;
    scene.mirror.hear(News::Reloaded);
    scene.settle();
    assert_eq!(scene.carried(), [(0x2000, 0)]);
    assert_eq!(scene.linux.sent(0x4000), 0);
}

#[test]
fn events_are_followed() {
    let mut scene = Scene::new();
    for spi in [0x2000, 0x2001, 0x2002] {
        scene.linux.add(&sa(spi, Direction::Out));
    }
    scene.settle();
    // Other bounds: its numbers stay, though Linux tells the largest.
    let mut changed = scene.linux.state().sas[0].clone();
    changed.info.lifetimes.bytes = [5, 6];
    scene.linux.event(write::sa(&write::event(kind::UPDSA), &changed, KeyUse::Shown));
    scene.settle();
    assert_eq!(scene.carried(), [(0x2000, 0), (0x2001, 0), (0x2002, 0)]);
    let third = sa(0x2002, Direction::Out);
    scene.linux.event(write::expire(&write::event(kind::EXPIRE), &third, Bound::Soft));
    scene.linux.remove(&sa(0x2001, Direction::Out).info.name());
    scene.settle();
    assert_eq!(scene.carried(), [(0x2000, 0), (0x2002, 0)]);
    scene.linux.event(write::expire(&write::event(kind::EXPIRE), &third, Bound::Hard));
    scene.settle();
    assert_eq!(scene.carried(), [(0x2000, 0)]);
    scene.linux.flush();
    scene.settle();
    assert_eq!(scene.carried(), []);
}

#[test]
fn policies_say_what_associations_protect() {
    let mut scene = Scene::new();
    scene.linux.put(&policy(2));
    scene.linux.add(&sa(0x2000, Direction::Out));
    scene.settle();
    let protected = |scene: &Scene| scene.plane.carried.lock().unwrap()[&0x2000].1;
    assert_eq!(protected(&scene), 1);
    scene.linux.put(&policy(3));
    scene.settle();
    assert_eq!(protected(&scene), 2);
    // Lost: one has gone and another one come.
    scene.linux.delete(&policy(2));
    scene.linux.delete(&policy(3));
    scene.linux.put(&policy(4));
    scene.linux.state().events.clear();
    scene.linux.state().is_lost = true;
    scene.settle();
    assert_eq!(protected(&scene), 1);
    let nets: Vec<Address> =
        scene.mirror.database.policies().map(|own| own.info.selector.destination).collect();
    assert_eq!(nets, [address("10.4.0.0")]);
}

#[test]
fn a_loss_is_made_good_by_a_list() {
    let mut scene = Scene::new();
    scene.linux.add(&sa(0x2000, Direction::Out));
    scene.linux.add(&sa(0x2001, Direction::Out));
    scene.settle();
    scene.linux.remove(&sa(0x2000, Direction::Out).info.name());
    scene.linux.add(&sa(0x2002, Direction::Out));
    scene.linux.add(&sa(0x1002, Direction::In));
    scene.linux.state().events.clear();
    scene.linux.state().is_lost = true;
    // Lists that changes interrupt are begun again.
    scene.linux.state().interrupts = 3;
    scene.settle();
    assert_eq!(scene.carried(), [(0x1002, 0), (0x2001, 0), (0x2002, 0)]);
    assert_eq!(scene.told(), Vec::<String>::new());
}

/// Lost: an association went, and another one with the same name and key came, by which Linux sends from the first number.
#[test]
fn one_that_linux_has_back_is_not_sent_by() {
    let mut scene = Scene::new();
    scene.linux.add(&sa(0x2000, Direction::Out));
    scene.settle();
    scene.linux.add(&sa(0x2000, Direction::Out));
    scene.linux.state().events.clear();
    scene.linux.state().is_lost = true;
    scene.linux.state().sends_meanwhile = 5;
    scene.settle();
    assert_eq!(scene.carried(), [(0x2000, 5 * SEGMENTS)]);
    assert_eq!(scene.linux.sent(0x2000), u64::from(u32::MAX));
}

/// An association that went and came before either was heard of: the events are older than what is asked.
#[test]
fn one_that_came_again_goes_on() {
    let mut scene = Scene::new();
    scene.linux.add(&sa(0x2000, Direction::Out));
    scene.linux.add(&sa(0x2000, Direction::Out));
    scene.settle();
    assert_eq!((scene.carried(), scene.told()), (vec![(0x2000, 0)], vec![]));
    // Moved by a daemon, which copies Linux's numbers.
    let mut moved = scene.linux.state().sas[0].clone();
    scene.linux.remove(&moved.info.name());
    moved.info.id.destination = address("192.0.2.3");
    scene.linux.add(&moved);
    scene.settle();
    assert_eq!((scene.carried(), scene.told()), (vec![(0x2000, 0)], vec![]));
    // What has been gone for long is not remembered.
    scene.linux.remove(&moved.info.name());
    scene.settle();
    scene.mirror.tick();
    scene.mirror.tick();
    scene.linux.add(&moved);
    scene.settle();
    assert_eq!((scene.carried(), scene.told()), (vec![], vec!["Soft 2000".to_owned()]));
}

/// An event that is older than what was asked of Linux since does not end what is carried.
#[test]
fn a_stale_event_changes_nothing() {
    let mut scene = Scene::new();
    scene.linux.add(&sa(0x2000, Direction::Out));
    scene.settle();
    scene.linux.event(write::sa(&write::event(kind::NEWSA), &sa(0x2000, Direction::Out), KeyUse::Shown));
    scene.settle();
    assert_eq!((scene.carried(), scene.told()), (vec![(0x2000, 0)], vec![]));
}

#[test]
fn use_is_written_back_when_it_changes() {
    let mut scene = Scene::new();
    scene.linux.add(&sa(0x2000, Direction::Out));
    scene.settle();
    scene.mirror.tick();
    assert_eq!(scene.linux.state().used, []);
    *scene.plane.usage.lock().unwrap() =
        Usage { packets: 10, bytes: 1_000, since_first: Some(Duration::ZERO), ..Usage::default() };
    scene.mirror.tick();
    scene.mirror.tick();
    assert_eq!(std::mem::take(&mut scene.linux.state().used), [(0x2000, 10)]);
    let used = scene.linux.state().sas[0].info.used;
    assert_eq!((used.bytes, used.packets), (1_000, 10));
    assert!(used.first > 1_600_000_000);
    // Its numbers stay as they are.
    assert_eq!(scene.linux.sent(0x2000), u64::from(u32::MAX));
}

#[test]
fn linux_tells_its_daemons_of_bounds_and_needs() {
    let mut scene = Scene::new();
    let mut out = sa(0x2000, Direction::Out);
    out.info.lifetimes.packets = [10, 20];
    // Of age Linux itself takes care.
    out.info.lifetimes.added = [1, 1];
    scene.linux.add(&out);
    scene.linux.put(&policy(2));
    scene.settle();
    let packets = |packets| Usage { packets, ..Usage::default() };
    *scene.plane.usage.lock().unwrap() = packets(10);
    scene.mirror.tick();
    scene.mirror.tick();
    assert_eq!(scene.told(), ["Soft 2000"]);
    *scene.plane.usage.lock().unwrap() = packets(20);
    scene.mirror.tick();
    assert_eq!(scene.told(), ["Hard 2000"]);
    assert_eq!((scene.carried(), scene.linux.state().sas.len()), (vec![], 0));
    scene.settle();
    let mut packet = policy(2).info.selector;
    (packet.source_len, packet.destination_len) = (32, 32);
    let ends = Binding::Ends(LOCAL.parse().unwrap(), Some(PEER.parse().unwrap()));
    scene.mirror.hear(News::Needed { tunnel: ends, packet, cpu: None });
    assert_eq!(scene.told(), ["ACQUIRE"]);
    scene.linux.add(&sa(0x2001, Direction::Out));
    scene.settle();
    scene.mirror.hear(News::End(Name { spi: 0x2001, destination: PEER.parse().unwrap() }));
    assert_eq!((scene.told(), scene.carried()), (vec!["Hard 2001".to_owned()], vec![]));
}

/// Step of a history.
#[derive(Clone, Debug)]
enum Step {
    Add(u32, Direction),
    Remove(u32, Direction),
    Flush,
    /// Datagrams that have not been read are lost.
    Lose,
    Follow,
    Reload,
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let direction = || prop_oneof![Just(Direction::In), Just(Direction::Out)];
    prop_oneof![
        4 => (0x2000..0x2004_u32, direction()).prop_map(|(spi, way)| Step::Add(spi, way)),
        2 => (0x2000..0x2004_u32, direction()).prop_map(|(spi, way)| Step::Remove(spi, way)),
        1 => Just(Step::Flush),
        2 => Just(Step::Lose),
        4 => Just(Step::Follow),
        1 => Just(Step::Reload),
        1 => Just(Step::Tick),
    ]
}

proptest! {
    /// Whatever happens: by what is carried, Linux sends no more, once it has been heard; and in the end what Linux has and
    /// the gateway may carry is carried.
    #[test]
    fn nothing_is_sent_by_both(steps in prop::collection::vec(step(), 0..40), meanwhile in 0..4_u32, before in any::<bool>()) {
        let linux = Linux::new();
        if before {
            linux.add(&sa(0x2000, Direction::Out));
        }
        linux.state().sends_meanwhile = meanwhile;
        let mut scene = Scene::with(linux);
        // SPIs of the two directions differ here, as their names do.
        let one = |spi, way| sa(if way == Direction::In { spi - 0x1000 } else { spi }, way);
        for step in steps {
            match step {
                Step::Add(spi, way) => scene.linux.add(&one(spi, way)),
                Step::Remove(spi, way) => scene.linux.remove(&one(spi, way).info.name()),
                Step::Flush => scene.linux.flush(),
                Step::Lose => {
                    let mut state = scene.linux.state();
                    state.events.clear();
                    state.is_lost = true;
                }
                Step::Follow => scene.settle(),
                Step::Reload => scene.mirror.hear(News::Reloaded),
                Step::Tick => scene.mirror.tick(),
            }
        }
        scene.settle();
        let own: Vec<u32> = scene.carried().into_iter().map(|(spi, _)| spi).collect();
        for spi in own.iter().filter(|spi| **spi >= 0x2000) {
            assert_eq!(scene.linux.sent(*spi), u64::from(u32::MAX));
        }
        let state = scene.linux.state();
        let there: BTreeSet<u32> = state.sas.iter().map(|sa| sa.info.id.spi).collect();
        assert!(own.iter().all(|spi| there.contains(spi)));
        let missing: Vec<u32> = there.into_iter().filter(|spi| !own.contains(spi)).collect();
        // Only what is older than the gateway, or was taken before and its numbers are not known.
        for spi in missing {
            let sa = state.sas.iter().find(|sa| sa.info.id.spi == spi).unwrap();
            let is_older = scene.mirror.older.as_ref().unwrap().contains(&sa.info.name());
            assert!(is_older || sent(sa) == last(sa), "{spi:x}");
        }
    }
}
