use std::path::PathBuf;
use std::sync::Arc;

use rustix::net::sockopt::set_socket_timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, connect, socket_with};

use super::super::association::Association;
use super::super::parse::tests::bytes_of;
use super::super::state::{Protected, Usage};
use super::*;

/// Data plane without packets.
struct Kept;

impl Carrier for Kept {
    fn add(&mut self, _: &Arc<Association>, _: &Protected) -> Result<(), Refusal> {
        Ok(())
    }

    fn change(&mut self, _: &Association, _: &Arc<Association>, _: &Protected) -> Result<(), Refusal> {
        Ok(())
    }

    fn remove(&mut self, _: &[&Association]) {}

    fn usage(&mut self, association: &Association) -> Usage {
        Usage { numbers: association.numbers, ..Usage::default() }
    }
}

/// Server at a path of its own.
struct Place {
    path: PathBuf,
    server: Option<Server>,
}

impl Place {
    fn new(name: &str, sas: usize) -> Place {
        let directory = std::env::temp_dir().join(format!("wirerate-xfrm-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("xfrm");
        let server = Server::start(&path, Limits { sas, policies: 16 }, Box::new(Kept)).unwrap();
        Place { path, server: Some(server) }
    }

    fn client(&self) -> OwnedFd {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&self.path).unwrap()).unwrap();
        let patience = Some(Duration::from_secs(5));
        set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, patience).unwrap();
        set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, patience).unwrap();
        socket
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(self.path.parent().unwrap());
    }
}

fn say(client: &OwnedFd, bytes: &[u8]) {
    assert_eq!(send(client, bytes, SendFlags::NOSIGNAL).unwrap(), bytes.len());
}

fn hear(client: &OwnedFd) -> Vec<u8> {
    let mut buffer = vec![0; LARGEST];
    let (_, length) = recv(client, &mut buffer[..], RecvFlags::empty()).expect("an answer in time");
    buffer.truncate(length);
    buffer
}

fn kind_of(message: &[u8]) -> u16 {
    u16::from_ne_bytes([message[4], message[5]])
}

/// Error number of an acknowledgement, and its words.
fn error_of(message: &[u8]) -> (i32, String) {
    assert_eq!(kind_of(message), 2, "an acknowledgement");
    let words = message.get(40..).unwrap_or(&[]).split(|byte| *byte == 0).next().unwrap();
    (i32::from_ne_bytes(message[16..20].try_into().unwrap()), String::from_utf8(words.to_vec()).unwrap())
}

fn ask(client: &OwnedFd, command: &str) -> Vec<u8> {
    say(client, &bytes_of(command));
    hear(client)
}

const GCM: &str = "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000";

/// Asks for the groups of events that `ip xfrm monitor` asks for.
fn subscribe(client: &OwnedFd) {
    let message = [20_u32.to_ne_bytes(), [15, 0, 0, 0], [0; 4], [0; 4], u32::MAX.to_ne_bytes()].concat();
    say(client, &message);
}

#[test]
fn two_clients() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new("two", 16);
    assert_eq!(std::fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, 0o600);
    let (ip, monitor) = (place.client(), place.client());
    subscribe(&monitor);
    // That it has been taken, too.
    assert_eq!(kind_of(&ask(&monitor, "ip xfrm state count")), kind::NEWSADINFO);
    assert_eq!(error_of(&ask(&ip, GCM)), (0, String::new()));
    let (errno, words) = error_of(&ask(&ip, GCM));
    assert_eq!(-errno, Errno::EXIST.raw_os_error());
    assert!(words.contains("has this destination and SPI"), "{words}");
    assert_eq!(kind_of(&hear(&monitor)), kind::NEWSA);
    assert_eq!(kind_of(&ask(&ip, "ip xfrm state get")), kind::NEWSA);
    assert_eq!(kind_of(&ask(&ip, "ip xfrm state list")), kind::NEWSA);
    assert_eq!(kind_of(&hear(&ip)), 3);
    assert_eq!(error_of(&ask(&ip, "ip xfrm state flush")).0, 0);
    assert_eq!(kind_of(&hear(&monitor)), kind::FLUSHSA);
}

#[test]
fn the_socket_goes_with_the_server() {
    let mut place = Place::new("goes", 16);
    let client = place.client();
    ask(&client, "ip xfrm state count");
    let again = Server::start(&place.path, Limits { sas: 1, policies: 1 }, Box::new(Kept)).err().unwrap();
    assert!(again.to_string().contains("another gateway takes SAs"), "{again}");
    assert!(again.to_string().contains("`[gateway] xfrm`"), "{again}");
    place.server = None;
    assert!(!place.path.exists());
    assert_eq!(recv(&client, &mut [0; 16][..], RecvFlags::empty()).unwrap().1, 0);
}

/// Garbage, halves of messages, too long ones, empty ones: the next right request is answered as if nothing had been.
#[test]
fn garbage() {
    let place = Place::new("garbage", 16);
    let client = place.client();
    let right = bytes_of(GCM);
    for length in [1, 4, 15, 16, 17, 100, right.len() - 1] {
        say(&client, &right[..length]);
    }
    say(&client, &[0xff; 4096]);
    say(&client, &vec![0x55; LARGEST + 4096]);
    // Cut off within what its header says is whole.
    let mut cut = right[..116].to_vec();
    cut[..4].copy_from_slice(&116_u32.to_ne_bytes());
    say(&client, &cut);
    let (errno, words) = error_of(&hear(&client));
    assert_eq!(-errno, Errno::INVAL.raw_os_error());
    assert!(words.contains("cut off"), "{words}");
    assert_eq!(error_of(&ask(&client, GCM)).0, 0);
    // One that went in the middle.
    let half = place.client();
    say(&half, &right[..50]);
    drop(half);
    assert_eq!(kind_of(&ask(&client, "ip xfrm state get")), kind::NEWSA);
}

/// Clients that ask and never read: they wait, and nobody else does.
#[test]
fn a_flood() {
    let place = Place::new("flood", 1024);
    let (flood, other, monitor) = (place.client(), place.client(), place.client());
    subscribe(&monitor);
    rustix::io::ioctl_fionbio(&flood, true).unwrap();
    let mut sent = 0;
    while sent < 100_000 && send(&flood, &bytes_of("ip xfrm state get"), SendFlags::NOSIGNAL).is_ok() {
        sent += 1;
    }
    assert_eq!(error_of(&ask(&other, GCM)).0, 0);
    // Events that the monitor does not read are bounded, and it is told when it reads again.
    let delete = bytes_of("ip xfrm state delete");
    for _ in 0..2 * WAITING {
        say(&other, &delete);
        hear(&other);
        assert_eq!(error_of(&ask(&other, GCM)).0, 0);
    }
    let mut heard = 0;
    while kind_of(&hear(&monitor)) != 4 {
        heard += 1;
    }
    assert!((WAITING..4 * WAITING).contains(&heard), "{heard} events before it was told");
    // Connections are bounded as well.
    let many: Vec<OwnedFd> = (0..2 * CLIENTS).map(|_| place.client()).collect();
    let last = many.last().unwrap();
    assert!(matches!(recv(last, &mut [0; 16][..], RecvFlags::empty()), Ok((_, 0)) | Err(Errno::CONNRESET)));
    assert_eq!(kind_of(&ask(&other, "ip xfrm state count")), kind::NEWSADINFO);
    drop(many);
    let fresh = place.client();
    assert_eq!(kind_of(&ask(&fresh, "ip xfrm state count")), kind::NEWSADINFO);
}

/// A flood of refusals is one line a second, and the number of those that had none.
#[test]
fn refusals_that_are_not_logged_are_counted() {
    let (mut refusals, begin) = (Refusals::default(), Instant::now());
    let after = |millis| begin + Duration::from_millis(millis);
    assert_eq!(refusals.take_left_out(begin), 0);
    let due = [0, 1, 500, 999].map(|millis| refusals.is_due(after(millis)));
    assert_eq!(due, [true, false, false, false]);
    assert_eq!(refusals.take_left_out(after(999)), 0);
    assert_eq!((refusals.take_left_out(after(1_000)), refusals.take_left_out(after(1_000))), (3, 0));
    assert!(refusals.is_due(after(1_000)) && !refusals.is_due(after(1_001)));
    assert_eq!(refusals.take_left_out(after(2_001)), 1);
}
