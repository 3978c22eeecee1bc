//! Sessions between two gateways in one process, with real workers; and with peers that no gateway is.

use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use dataplane::flow::{Ends, FlowId, Handshake, State, Windows};
use dataplane::hop::Resolve;
use dataplane::nat::{Endpoint, Share};
use dataplane::port_mapping::{
    Holder, Label, MappedBy, PortMappingRemoval, PortMappingUpdate, PortRefusal, PortRequest, PortWish,
    UnmapCause, Version,
};
use dataplane::set::{Element, SetChange};
use dataplane::shard::Setup;
use dataplane::state::{
    ElementRecord, FlowRecord, Item, MappingRecord, Names, PortMappingRecord, Prefix, RemovalRecord,
    Standing, Through,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;
use wire::{Nanos, Pool, PortId};

use super::message::{Greeting, Hello, Message, encode, read};
use super::session::SessionError;
use super::*;
use crate::clock::Clock;
use crate::port_mapping::{EpochRecord, Mapper};
use crate::worker::{
    Command, Exchange, Imported, Memory, Parts, Shared as SharedParts, WakeUp, Worker, command_channel,
};

mod owner;

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.2/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[gateway]
sync = "listen:192.0.2.1:9480"
sync-certificate = "crt"
sync-key = "key"
sync-ca = "ca"
[limit]
flows = 4096
[dynamic-set.banned]
[dynamic-set.guests]
size = 3000
"#;

/// Times by which a test comes to its end.
const QUICK: Times = Times {
    greeting: Duration::from_millis(300),
    quiet: Duration::from_millis(200),
    silence: Duration::from_millis(500),
    stuck: Duration::from_millis(300),
    alive: Duration::from_millis(100),
};

struct Gateway {
    senders: Vec<CommandSender>,
    threads: Vec<JoinHandle<Memory>>,
    tables: Arc<Tables>,
    shards: Shards,
    shared: Shared,
    memory: PeerMemory,
}

impl Gateway {
    fn new(workers: usize, instance: Instance) -> Gateway {
        Gateway::of(POLICY, workers, instance)
    }

    fn of(policy: &str, workers: usize, instance: Instance) -> Gateway {
        let checked = policy::check(policy, "policy");
        let policy = checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
        let tables = Arc::new(Tables::compile(&policy, 1).unwrap());
        let channels: Vec<_> = (0..workers).map(|_| command_channel().unwrap()).collect();
        let wake_ups: Vec<WakeUp> = channels.iter().map(|(_, commands)| commands.wake_up().clone()).collect();
        let steering = (workers > 1).then(|| Arc::new(SteeringTable::new(workers as u16, 4096).unwrap()));
        let (clock, clients) = (Clock::start(), Arc::default());
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for ((number, (sender, commands)), exchange) in
            channels.into_iter().enumerate().zip(Exchange::between(&wake_ups))
        {
            let share = Share::new(number as u16, workers as u16).unwrap();
            let worker = Worker::new(Parts {
                number,
                tables: tables.clone(),
                setup: Setup { seed: instance, now: clock.now(), resolve: Resolve::ByHost, share },
                pool: Pool::new(64, 2048).unwrap(),
                clock,
                commands,
                events: Box::new(|_| true),
                shared: steering.clone().map(|steering| SharedParts {
                    steering,
                    clients: Arc::clone(&clients),
                    exchange,
                }),
                log: None,
                export: None,
                fast_path: None,
            });
            let worker = worker.unwrap();
            threads.push(thread::spawn(move || worker.work()));
            senders.push(sender);
        }
        let shards = Shards::new(senders.clone(), steering, tables.clone());
        let peer = SyncPeer::Listen(([192, 0, 2, 1], 9480).into());
        let half = tables.pair.as_ref().map(|pair| pair.half);
        Gateway {
            senders,
            threads,
            tables,
            shards,
            shared: Shared::new(peer, instance, Arc::default()).dividing(half),
            memory: PeerMemory::default(),
        }
    }

    /// Sets flows up, as their packets would.
    fn begin(&self, flows: impl Iterator<Item = FlowRecord>) {
        let workers = self.senders.len();
        for flow in flows {
            let owner = crate::worker::owner_of(&Item::Flow(flow), &self.tables, workers, None).unwrap();
            let (reply, answer) = oneshot::channel();
            let (tables, items) = (self.tables.clone(), vec![Item::Flow(flow)]);
            self.senders[owner].send(Command::Import { tables, items, reply });
            let Imported::Done(outcomes) = answer.blocking_recv().unwrap() else { panic!("other tables") };
            assert_eq!(outcomes, [Ok(())]);
        }
    }

    fn flows(&self) -> u32 {
        let (to, told) = channel();
        for sender in &self.senders {
            sender.send(Command::Report(to.clone()));
        }
        drop(to);
        told.iter().map(|report| report.flows).sum()
    }

    fn status(&self) -> SyncStatus {
        self.shared.status()
    }

    async fn with(&mut self, stream: DuplexStream) -> SessionError {
        conduct(stream, "peer", &self.shards, &self.shared, &mut self.memory, QUICK).await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for sender in &self.senders {
            sender.send(Command::Stop);
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn flow(number: u16) -> FlowRecord {
    let [a, b] = [[192, 168, 1, 10], [8, 8, 8, 8]].map(|bytes: [u8; 4]| bytes.into());
    let original = Ends { source: a, destination: b, sport: 1024 + number, dport: 53, protocol: 17 };
    let reply = Ends { source: b, destination: a, sport: 53, dport: 1024 + number, protocol: 17 };
    FlowRecord {
        id: FlowId(0),
        original,
        reply,
        ingress: Some(PortId(0)),
        state: State::UdpConfirmed,
        windows: Windows::default(),
        idle: Nanos(0),
        age: Nanos(0),
        standing: Standing::Waits,
        rule: None,
        destination: Through::None,
        source: Through::None,
        mapping: None,
        inward: None,
        kind: 0,
        ds_field: 0,
        tcp_flags: 0,
        wan: None,
        mac: None,
        handshake: Handshake::Direct,
    }
}

/// Changes sets on all workers, as a request would.
fn change_sets(workers: &[CommandSender], changes: impl Iterator<Item = SetChange>) {
    let changes: Arc<[SetChange]> = changes.collect();
    for worker in workers {
        worker.send(Command::ChangeSets { changes: changes.clone(), reply: None });
    }
}

/// Numbers of elements, by worker and set.
fn elements(workers: &[CommandSender]) -> Vec<[u32; 2]> {
    let (to, told) = channel();
    for worker in workers {
        worker.send(Command::Report(to.clone()));
    }
    drop(to);
    told.iter().map(|report| [0, 1].map(|set: usize| report.sets[set].elements)).collect()
}

fn added(set: u16, numbers: std::ops::Range<u32>) -> impl Iterator<Item = SetChange> {
    numbers.map(move |number| SetChange::Add(Element { set, prefix: prefix(number), until: None }))
}

fn prefix(number: u32) -> ipnet::IpNet {
    std::net::IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number)).into()
}

/// Asks the worker that owns a host for a mapping of its port; with no seconds for the mapping's end.
async fn map(gateway: &Asking, host: u8, port: u16, nonce: u8, seconds: u64) -> Result<u16, PortRefusal> {
    let inside = Endpoint::new([192, 168, 1, host].into(), port, 6);
    let holder = Holder { by: MappedBy::Pcp, nonce: [nonce; 12], label: Label::default() };
    if seconds == 0 {
        return gateway.mapper.unmap(inside, holder).await.unwrap().map(|_| 0);
    }
    let lasts = Some(Nanos::from_secs(seconds));
    let request = PortRequest { inside, port: PortWish::Any, lasts, holder };
    gateway.mapper.map(request).await.unwrap().map(|granted| granted.mapping.outside.port)
}

/// Access to a gateway's port mappings while its session goes on.
struct Asking {
    mapper: Mapper,
}

impl Asking {
    fn of(gateway: &Gateway) -> Asking {
        let (workers, epoch) = (gateway.senders.clone(), gateway.shared.epoch.clone());
        Asking { mapper: Mapper { workers, steering: gateway.shards.steering.clone(), epoch } }
    }

    /// Mappings: host, its port and the outside port.
    async fn all(&self) -> Vec<(String, u16, u16)> {
        let list = self.mapper.list().await.unwrap();
        list.into_iter().map(|own| (own.inside, own.inside_port, own.outside_port)).collect()
    }

    async fn until_there_are(&self, count: usize) {
        for _ in 0..1000 {
            if self.all().await.len() == count {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain for {count} mappings: {:?}", self.all().await);
    }

    /// Waits until both gateways have the same mappings, `count` of them: each has as many for a moment, too,
    /// where it has been asked for what the other does not know yet.
    async fn until_alike(&self, other: &Self, count: usize) {
        for _ in 0..1000 {
            let all = self.all().await;
            if all.len() == count && all == other.all().await {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain for {count} alike: {:?}, {:?}", self.all().await, other.all().await);
    }
}

/// Difference of two gateways' epochs.
fn apart(one: &Asking, two: &Asking) -> Duration {
    let (one, two) = (one.mapper.epoch.age(), two.mapper.epoch.age());
    one.abs_diff(two)
}

/// Runs `act` on a runtime as the thread's.
fn run<T>(act: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(act)
}

async fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain: {what}");
}

/// The session of one with the other, until `act` has come to its end.
async fn talk(one: &mut Gateway, other: &mut Gateway, act: impl Future<Output = ()>) {
    let (a, b) = duplex(1 << 16);
    tokio::select! {
        ended = one.with(a) => panic!("{ended}"),
        ended = other.with(b) => panic!("{ended}"),
        () = act => {}
    }
}

#[test]
fn flows_are_told_at_first_and_as_they_come_and_both_ways() {
    let (mut one, mut two) = (Gateway::new(1, [1, 1]), Gateway::new(2, [2, 2]));
    one.begin((0..700).map(flow));
    let (a, b) = duplex(1 << 12);
    let (stop, stopped) = oneshot::channel::<()>();
    run(async {
        let senders = one.senders.clone();
        let tables = one.tables.clone();
        let own = async {
            sleep(Duration::from_millis(300)).await;
            let (reply, answer) = oneshot::channel();
            let items = (700..720).map(flow).map(Item::Flow).collect();
            senders[0].send(Command::Import { tables, items, reply });
            answer.await.unwrap_or_else(|_| panic!("no answer"));
            let _ = stopped.await;
        };
        let account = &two.shared.account;
        let watch = async {
            until("all flows are there", || account.status().received.created == 720).await;
            let _ = stop.send(());
        };
        tokio::select! {
            ended = conduct(a, "two", &one.shards, &one.shared, &mut one.memory, QUICK) => panic!("{ended}"),
            ended = conduct(b, "one", &two.shards, &two.shared, &mut two.memory, QUICK) => panic!("{ended}"),
            _ = async { tokio::join!(own, watch) } => {}
        }
    });
    assert_eq!(two.flows(), 720);
    // Nothing of it came back.
    let status = one.status();
    assert_eq!((status.received, status.flows_sent), (ReceivedCounts::default(), 720));
    assert_eq!((status.state, status.full, status.trouble), (SyncState::Incremental, 1, None));
}

#[test]
fn a_peer_that_began_anew_gets_its_flows_back_and_one_that_did_not_says_which_have_ended() {
    let (mut one, mut two) = (Gateway::new(1, [1, 1]), Gateway::new(1, [2, 2]));
    one.begin((0..10).map(flow));
    run(async {
        talk(&mut one, &mut two, sleep(Duration::from_millis(300))).await;
    });
    assert_eq!(two.flows(), 10);
    // Away, while nothing of it is left there: it says so by what it does not tell of.
    let mut anew = Gateway::new(1, [1, 1]);
    run(async { talk(&mut anew, &mut two, sleep(Duration::from_millis(300))).await });
    assert_eq!(two.flows(), 0, "the same flows' gateway has none of them");
    one.memory = PeerMemory::default();
    run(async { talk(&mut one, &mut two, sleep(Duration::from_millis(300))).await });
    assert_eq!(two.flows(), 10);
    let mut other = Gateway::new(1, [3, 3]);
    run(async { talk(&mut other, &mut two, sleep(Duration::from_millis(300))).await });
    assert_eq!((two.flows(), other.flows()), (10, 10), "one that has begun anew learns them");
}

#[test]
fn elements_of_sets_are_told_to_all_workers_at_first_and_as_they_change() {
    let (mut one, mut two) = (Gateway::new(2, [1, 1]), Gateway::new(3, [2, 2]));
    let (of_one, of_two) = (one.senders.clone(), two.senders.clone());
    change_sets(&of_one, added(1, 0..2500));
    change_sets(&of_two, added(0, 0..1));
    let removed = |number| [SetChange::Remove { set: 1, prefix: prefix(number) }].into_iter();
    run(async {
        let act = async {
            until("all are there", || elements(&of_two) == [[1, 2500]; 3]).await;
            until("and of the other", || elements(&of_one) == [[1, 2500]; 2]).await;
            change_sets(&of_one, added(1, 2500..2600));
            change_sets(&of_two, removed(0));
            until("the first has all", || elements(&of_one) == [[1, 2599]; 2]).await;
            until("and the other", || elements(&of_two) == [[1, 2599]; 3]).await;
            change_sets(&of_one, [SetChange::Flush { set: 1 }].into_iter().chain(added(1, 7..8)));
            until("all but one are gone", || elements(&of_two) == [[1, 1]; 3]).await;
        };
        talk(&mut one, &mut two, act).await;
    });
    let [here, there] = [one.status(), two.status()];
    assert_eq!((here.elements_sent, here.removed_sent, there.removed_received), (2601, 1, 1));
    assert_eq!((there.elements_sent, there.removed_sent, here.elements_received), (1, 1, 1));
    // Away, while one that it had told of goes.
    change_sets(&of_one, removed(7));
    let gone = until("it is gone", || elements(&of_two) == [[1, 0]; 3]);
    run(talk(&mut one, &mut two, gone));
    // One that begins anew has all again.
    let mut anew = Gateway::new(1, [3, 3]);
    let workers = anew.senders.clone();
    run(talk(&mut anew, &mut two, until("it has all", || elements(&workers) == [[1, 0]])));
}

/// The policy with outside ports that hosts may ask for, of one of two gateways.
fn asking(own: u8, mapping: &str) -> String {
    let masquerade = format!(
        "[[nat]]\nname = \"out\"\nkind = \"masquerade\"\nfrom = \"lan\"\nto = \"wan\"\n[nat.port-mapping]\n{mapping}\n"
    );
    let policy = POLICY.replace("192.168.1.2/24", &format!("192.168.1.{own}/24"));
    let shown = format!("addresses = [\"203.0.113.{own}/24\"]\nvirtual-addresses = [\"203.0.113.10\"]");
    policy.replace("addresses = [\"203.0.113.2/24\"]", &shown) + &masquerade
}

#[test]
fn port_mappings_are_told_at_first_and_as_they_change_with_the_epoch() {
    let mut one = Gateway::of(&asking(2, "per-host = 100"), 2, [1, 1]);
    let mut two = Gateway::of(&asking(3, "per-host = 100"), 2, [2, 2]);
    let (here, there) = (Asking::of(&one), Asking::of(&two));
    one.shared.epoch.begin_anew();
    thread::sleep(Duration::from_millis(1100));
    two.shared.epoch.begin_anew();
    run(async {
        for host in 10..20 {
            for port in 0..10 {
                map(&here, host, 8000 + port, host, 600).await.unwrap();
            }
        }
        here.mapper.epoch.answer();
        let act = async {
            here.until_alike(&there, 100).await;
            until("the epoch is the other's", || apart(&here, &there) < Duration::from_millis(500)).await;
            // At the standby, which is asked from now on.
            let known = map(&there, 10, 8000, 10, 900).await.unwrap();
            assert!(here.all().await.contains(&("192.168.1.10".to_owned(), 8000, known)));
            assert_eq!(map(&there, 10, 8000, 99, 900).await, Err(PortRefusal::NotHolder));
            map(&there, 10, 8001, 10, 0).await.unwrap();
            map(&here, 11, 8000, 11, 0).await.unwrap();
            map(&here, 30, 8000, 30, 600).await.unwrap();
            here.until_alike(&there, 99).await;
        };
        talk(&mut one, &mut two, act).await;
    });
    let [sent, received] = [one.status(), two.status()];
    assert_eq!((sent.port_mappings_sent, received.port_mappings_received), (101, 101));
    // One renewed and one removed there are told back, as superseded, where the session does not end before.
    assert!((1..=3).contains(&sent.unmapped_sent), "{}", sent.unmapped_sent);
    assert_eq!(received.unmapped_received, 1);
    assert_eq!((received.port_mappings_sent, sent.unmapped_received), (1, 1));
    assert!(sent.refused.is_empty() && received.refused.is_empty());
    // Away, while one goes here and another is made there; then a gateway that has begun anew.
    run(async {
        map(&here, 12, 8000, 12, 0).await.unwrap();
        map(&there, 31, 8000, 31, 600).await.unwrap();
        let act = async {
            here.until_alike(&there, 99).await;
        };
        talk(&mut one, &mut two, act).await;
        let mut anew = Gateway::of(&asking(2, "per-host = 100"), 2, [3, 3]);
        let learns = Asking::of(&anew);
        talk(&mut anew, &mut two, learns.until_there_are(99)).await;
    });
}

#[test]
fn port_mappings_that_cannot_be_here_are_counted_by_name_and_leave_the_epoch() {
    let mut one = Gateway::of(&asking(2, ""), 1, [1, 1]);
    let mut two = Gateway::of(&asking(3, "per-host = 1"), 1, [2, 2]);
    let (here, there) = (Asking::of(&one), Asking::of(&two));
    thread::sleep(Duration::from_millis(1100));
    two.shared.epoch.begin_anew();
    run(async {
        map(&here, 10, 8000, 1, 600).await.unwrap();
        map(&here, 10, 8001, 1, 600).await.unwrap();
        here.mapper.epoch.answer();
        let act = async {
            there.until_there_are(1).await;
            sleep(Duration::from_millis(400)).await;
        };
        talk(&mut one, &mut two, act).await;
    });
    let refused = two.status().refused;
    let words =
        "a port mapping of the translation \"out\": the host has as many mappings as it may have here";
    assert_eq!(refused.get(words), Some(&1), "{refused:?}");
    let apart = apart(&here, &there);
    assert!(apart > Duration::from_secs(1), "hosts are to see the loss when they come here: {apart:?}");
}

/// Words of a gateway on a peer that sends these bytes, and then does `then` with the stream.
fn says_of<F: Future<Output = ()>>(
    gateway: &mut Gateway,
    bytes: Vec<u8>,
    then: impl FnOnce(DuplexStream) -> F,
) -> String {
    run(async {
        let (a, mut b) = duplex(1 << 12);
        let peer = async move {
            b.write_all(&bytes).await.unwrap();
            then(b).await;
        };
        let (said, ()) = tokio::join!(gateway.with(a), peer);
        said.to_string()
    })
}

/// A peer that reads on until the other has done.
async fn listens(mut stream: DuplexStream) {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
}

fn hello(instance: Instance) -> Vec<u8> {
    let mut bytes = Greeting::own().line().into_bytes();
    let hello =
        Hello { instance, version: "9.9".to_owned(), time_of_day: Nanos::from_secs(86_400), half: None };
    encode(&Message::Hello(hello), &mut bytes).unwrap();
    bytes
}

fn after_hello(message: &Message) -> Vec<u8> {
    let mut bytes = hello([9, 9]);
    encode(message, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_peer_that_is_none_is_refused_in_words_and_leaves_nothing() {
    let mut own = Gateway::new(1, [1, 1]);
    let raw = |length: u32, bytes: &[u8]| {
        let mut all = hello([9, 9]);
        all.extend(length.to_le_bytes());
        all.extend(bytes);
        all
    };
    let other_item = Item::Own(dataplane::state::OwnRecord::default());
    let many = Message::Flows(vec![Item::Flow(flow(0)); crate::store::BLOCK_ITEMS + 1]);
    let tries = [
        (b"wirerate sync 1, wirerate state 8\n".to_vec(), "\"wirerate sync 1, wirerate state 8\""),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "does not greet"),
        (vec![0xff; 4000], "does not greet"),
        (b"wirerate sync \x1b[2J\n".to_vec(), "does not greet"),
        (hello([1, 1]), "this gateway itself"),
        (
            after_hello(&Message::Hello(Hello {
                instance: [9, 9],
                version: String::new(),
                time_of_day: Nanos(0),
                half: None,
            })),
            "no message",
        ),
        (after_hello(&many), "no message"),
        (after_hello(&Message::Flows(vec![other_item])), "no message"),
        (raw(u32::MAX, b""), "no message"),
        (raw(3, b"\xff\xff\xff"), "no message"),
    ];
    for (bytes, word) in tries {
        let said = says_of(&mut own, bytes.clone(), listens);
        assert!(said.contains(word), "{said}: {word}: {bytes:?}");
    }
    assert!(says_of(&mut own, Vec::new(), listens).contains("in time"));
    assert_eq!(own.flows(), 0);
}

#[test]
fn a_peer_that_says_nothing_and_one_that_takes_nothing_have_gone() {
    let mut own = Gateway::new(1, [1, 1]);
    assert!(says_of(&mut own, hello([9, 9]), listens).contains("silent"));
    let status = own.status();
    assert!(status.clock_ahead_seconds.unwrap() < -1e9, "its clock is at 1970, and nothing depends on it");
    own.begin((0..2000).map(flow));
    // It goes on to talk, and reads no byte.
    let deaf = |mut stream: DuplexStream| async move {
        let mut alive = Vec::new();
        encode(&Message::Alive, &mut alive).unwrap();
        while stream.write_all(&alive).await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(says_of(&mut own, hello([9, 9]), deaf).contains("taken nothing"));
    // All are there for it when it comes again, and listens.
    let mut two = Gateway::new(1, [2, 2]);
    run(async { talk(&mut own, &mut two, sleep(Duration::from_millis(800))).await });
    assert_eq!(two.flows(), 2000);
}

#[test]
fn items_for_another_policy_are_refused_by_reason() {
    let mut own = Gateway::new(1, [1, 1]);
    let names = Names { interfaces: vec!["elsewhere".to_owned()], ..Names::of(&own.tables) };
    let mut bytes = after_hello(&Message::Names(names));
    encode(&Message::Flows(vec![Item::Flow(flow(0)), Item::Flow(flow(1))]), &mut bytes).unwrap();
    let names = Names { sets: vec!["els\u{1b}ewhere".to_owned(), "guests".to_owned()], ..Names::default() };
    encode(&Message::Names(names), &mut bytes).unwrap();
    let element = |set, number| {
        let prefix = prefix(number);
        let prefix = Prefix { first: prefix.addr(), bits: prefix.prefix_len() };
        ElementRecord { set: Some(set), prefix, left: None }
    };
    let of_none = vec![element(0, 1), element(7, 1)];
    encode(&Message::Elements(of_none), &mut bytes).unwrap();
    for numbers in [0..1024, 1024..2048, 2048..3001] {
        let some = numbers.map(|number| element(1, number)).collect();
        encode(&Message::Elements(some), &mut bytes).unwrap();
    }
    let removed = RemovalRecord { set: Some(0), prefix: None };
    encode(&Message::Removed(vec![removed]), &mut bytes).unwrap();
    says_of(&mut own, bytes, listens);
    let refused = own.status().refused;
    assert_eq!(refused.values().sum::<u64>(), 5, "{refused:?}");
    assert_eq!(refused["the set \"guests\" is full here"], 1);
    assert!(refused.keys().any(|words| words.contains("the set \"els\\u{1b}ewhere\"")), "{refused:?}");
    assert_eq!((own.flows(), elements(&own.senders)), (0, vec![[0, 3000]]));
}

#[test]
fn two_gateways_that_send_under_the_same_keys_say_so() {
    let tunnel = |key: &str| {
        format!(
            r#"
[interface.branch]
zone = "lan"
[interface.branch.esp]
local = "203.0.113.2"
remote = "198.51.100.1"
[[interface.branch.esp.sa]]
direction = "in"
spi = 0x1000
algorithm = "aes128-gcm"
key = "{}"
[[interface.branch.esp.sa]]
direction = "out"
spi = 0x2000
algorithm = "aes128-gcm"
key = "{key}"
"#,
            "0f".repeat(20)
        )
    };
    let with =
        |key: &str, instance| Gateway::of(&format!("{POLICY}{}", tunnel(&key.repeat(20))), 1, instance);
    let (mut one, mut two, mut three) = (with("a1", [1, 1]), with("a1", [2, 2]), with("b2", [3, 3]));
    run(async { talk(&mut one, &mut two, sleep(Duration::from_millis(300))).await });
    assert_eq!([&one, &two].map(|gateway| gateway.status().shared_keys), [1, 1]);
    run(async { talk(&mut one, &mut three, sleep(Duration::from_millis(300))).await });
    assert_eq!([&one, &three].map(|gateway| gateway.status().shared_keys), [0, 0]);
}

fn port_mapping() -> PortMappingUpdate {
    let inside = Endpoint::new([192, 168, 1, 10].into(), 80, 6);
    let outside = Endpoint::new([203, 0, 113, 10].into(), 8080, 6);
    let mapping = MappingRecord { nat: Some(0), inside, outside };
    let holder = Holder::operator(Label::of("a game"));
    let record = PortMappingRecord { mapping, left: Some(Nanos::from_secs(600)), holder };
    PortMappingUpdate { record, version: Version::default() }
}

#[test]
fn messages_are_read_as_they_were_written() {
    let ended = dataplane::sync::EndedFlow {
        original: flow(3).original,
        reply: flow(3).reply,
        port: 4711,
        cause: dataplane::sync::EndCause::Killed,
    };
    let messages = [
        Message::Flows(vec![Item::Flow(flow(1)), Item::Flow(flow(2))]),
        Message::Ended(vec![ended]),
        Message::Elements(vec![ElementRecord {
            set: Some(3),
            prefix: Prefix { first: [192, 0, 2, 0].into(), bits: 24 },
            left: Some(Nanos::from_secs(7)),
        }]),
        Message::Removed(vec![RemovalRecord { set: Some(3), prefix: None }]),
        Message::FullBegins,
        Message::FullEnds,
        Message::Alive,
        Message::PortMappings(vec![port_mapping()]),
        Message::Unmapped(vec![PortMappingRemoval {
            inside: port_mapping().record.mapping.inside,
            version: Version::default(),
            cause: UnmapCause::Gone,
        }]),
        Message::AllMapped,
        Message::Epoch(EpochRecord { age: Nanos::from_secs(7), answered: None }),
    ];
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| encode(message, &mut bytes).unwrap());
    run(async {
        let mut from = bytes.as_slice();
        for message in &messages {
            assert_eq!(read(&mut from, &mut Vec::new()).await.unwrap(), *message);
        }
        assert!(matches!(read(&mut from, &mut Vec::new()).await, Err(SessionError::Closed)));
        // Cut anywhere, it is no message.
        let mut one = Vec::new();
        encode(&messages[0], &mut one).unwrap();
        for length in 1..one.len() {
            let mut from = &one[..length];
            assert!(read(&mut from, &mut Vec::new()).await.is_err());
        }
    });
}
