//! The start of a gateway: the process is confined, interfaces are guarded, Linux is followed, tables are compiled, workers are
//! spawned, ports are opened, in this order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use policy::Policy;
use policy::model::{FastPath, Mode, Xfrm};
use serde_json::Value;
use tracing::{debug, info, warn};

use super::Supervisor;
use super::announce::Announcements;
use super::ike::Daemons;
use super::kernel::{Kernel, list_listeners};
use super::neighbour::Neighbours;
use super::port::{Ports, terms};
use super::port_mapping::PortMappings;
use super::process::{Process, Watchdog};
use super::sa::Associations;
use super::start_error::{StartError, system};
use super::worker::{Start, Workers, seed};
use crate::api::Trouble;
use crate::balance::{self, ServerChecks};
use crate::clock::Clock;
use crate::effective::{Effective, effective};
use crate::guard::Guards;
use crate::health::{Checker, Failed};
use crate::history::History;
use crate::ipfix::Exporter;
use crate::linux::State;
use crate::privilege::{self, Places, Restriction, directory_of};
use crate::reload::{Reload, compile, log_classifier};
use crate::sa::key_log::KeyLog;
use crate::sa::reserve::Reserve;
use crate::sa::total::Totals;
use crate::server::{Public, Server};
use crate::set::{Directories, Sources};
use crate::sync::{self, Synchroniser};
use crate::wan::{self, Checks};
use crate::xfrm::carried::Carried;
use crate::xfrm::linux::Source;
use crate::xfrm::state::Limits;
use crate::{log, signal, xfrm};

/// Bounds of what IKE daemons give.
const LIMITS: Limits = Limits { sas: 1024, policies: 4096 };

/// Start parameters of a gateway.
#[derive(Debug)]
pub struct Options {
    /// Policy to put in force.
    pub policy: Policy,
    /// File of the policy.
    pub file: PathBuf,
    /// Path of the control socket.
    pub socket: PathBuf,
    /// State file for flows over a restart; none are kept where absent.
    pub state: Option<PathBuf>,
    /// Directory of the history of policies that were put in force; none is kept where absent.
    pub history: Option<PathBuf>,
    /// Directory of a BPF file system where guards of interfaces are pinned.
    pub pins: PathBuf,
    /// File that keys of tunnels are written to, for Wireshark; none are where absent.
    pub key_log: Option<PathBuf>,
    /// Restriction of the process.
    pub restriction: Restriction,
    /// Explanation of a packet in words by the gateway at a control socket, for the page.
    pub explain: fn(&Path, &str) -> Result<Value, Trouble>,
}

impl Supervisor {
    /// Starts the gateway: reads the state of Linux, compiles tables, spawns workers, opens ports.
    ///
    /// # Errors
    /// Missing requirement of a gateway: [`StartError`]. A port that cannot be opened is no error, since it may come later;
    /// all ports failing is.
    pub fn start(mut options: Options) -> Result<Supervisor, StartError> {
        if !privilege::can_open_interfaces().map_err(|error| system("ask for privileges", error))? {
            return Err(StartError::Privilege);
        }
        let (path, state, directory) =
            (&options.socket, options.state.as_deref(), options.history.as_deref());
        let mut places = Places::make(&options.file, path, state, directory, &options.pins);
        // While it can: the key of metrics need not be its user's.
        let public = Public::open(&options.policy.gateway);
        // The file is root's, and stays so.
        let key_log = options.key_log.as_deref().map(KeyLog::open).transpose().map_err(StartError::KeyLog)?;
        let mut history = None;
        if let Some(directory) = &options.history {
            let (kept, policy) = History::begin(directory, &options.file, options.policy);
            (history, options.policy) = (Some(kept), policy);
        }
        places.log(&options.policy.gateway);
        places.xfrm(&options.policy.gateway);
        places.keys(&options.policy);
        places.access(&options.policy.gateway);
        places.sets(&options.policy);
        // To load what counts frames that devices refuse takes a privilege that is dropped.
        let fast_path = fast_path(&options.policy);
        let (confinement, held) =
            privilege::confine(&places, &options.restriction).map_err(StartError::Privileges)?;
        let policy = Arc::new(options.policy);
        // Before anything else that takes time, or may fail.
        let guards = Guards::start(&options.pins, terms(&policy, &State::default()), fast_path.clone())
            .map_err(StartError::Linux)?;
        let clock = Clock::start();
        let (sender, events) = channel();
        let kernel = Kernel::follow(sender.clone())?;
        let first = Arc::new(effective(&policy, &kernel.state, &Failed::default()));
        let directory = directory_of(&options.file);
        let (mut reserve, sequences) = Reserve::open(options.state.as_deref(), clock)
            .map_err(|error| StartError::Compile(error.into()))?;
        let tables =
            compile(&first.policy, &directory, None).map_err(StartError::Compile)?.going_on(sequences);
        let tables = Arc::new(tables);
        reserve.top_up(&tables, &[]).map_err(|error| StartError::Compile(error.into()))?;
        log_classifier(&tables);
        let log = log::Writer::start(&policy.gateway.log, clock)
            .map_err(|error| system("start a thread", error))?;
        let ipfix =
            Exporter::start(&policy.gateway.ipfix, clock).map_err(|error| system("start a thread", error))?;
        let (socket, of_words) = (options.socket.clone(), options.explain);
        let explain = Arc::new(move |packet: &str| of_words(&socket, packet));
        // Not before there are guards: a gateway that cannot begin leaves its interfaces closed.
        let server = public
            .and_then(|public| Server::start(&options.socket, public.explaining(explain), sender.clone()))
            .map_err(StartError::Server)?;
        let carried = || Box::new(Carried::new(sender.clone()));
        let xfrm = match &policy.gateway.xfrm {
            None => None,
            Some(Xfrm::Socket(path)) => {
                let server = xfrm::server::Server::start(path, LIMITS, carried());
                Some(Source::Socket(server.map_err(StartError::Server)?))
            }
            Some(Xfrm::Linux) => {
                let thread = xfrm::linux::follow(LIMITS, carried());
                Some(Source::Linux(thread.map_err(StartError::Xfrm)?))
            }
        };
        let started = Instant::now();
        let neighbours = Neighbours::new(&kernel.state, clock);
        let watchdog = Watchdog::of_service();
        list_listeners(sender.clone()).map_err(|error| system("start a thread", error))?;
        signal::forward(sender.clone(), options.file.clone())
            .map_err(|error| system("hear signals", error))?;
        let workers = Workers::spawn(&Start {
            count: usize::from(policy.gateway.workers.unwrap_or(1).max(1)),
            tables: &tables,
            state: options.state.as_deref(),
            log: &log,
            ipfix: &ipfix,
            clock,
            events: &sender,
            fast_path: fast_path.as_ref(),
        })?;
        let port_mappings = PortMappings::new();
        let sync = Synchroniser::start(sync::Start {
            sync: policy.gateway.sync.clone(),
            workers: workers.commands(),
            steering: workers.steering(),
            tables: tables.clone(),
            instance: seed(),
            epoch: port_mappings.epoch(),
        })
        .map_err(|error| system("start a thread", error))?;
        // Last good lists are beside the state, which outlives the process likewise.
        let kept = options.state.as_deref().map(|state| directory_of(state).join("sets"));
        let lists = Directories { policy: directory.clone(), kept };
        let mut supervisor = Supervisor {
            events,
            sender,
            kernel,
            neighbours,
            announcements: Announcements::default(),
            reload: Reload::new(policy, first, tables, history, directory),
            checks: Checks::default(),
            servers: ServerChecks::default(),
            checker: Checker::default(),
            sets: Sources::new(lists),
            port_mappings,
            reserve,
            added: Associations::default(),
            daemons: Daemons::default(),
            totals: Totals::default(),
            key_log,
            workers,
            ports: Ports::new(guards),
            process: Process {
                policy_file: options.file,
                state_file: options.state,
                started,
                watchdog,
                log,
                ipfix,
                sync,
                places,
                confinement,
                _held: held,
                _server: server,
                xfrm,
            },
        };
        supervisor.key_log.iter().for_each(KeyLog::announce);
        supervisor.log_keys();
        supervisor.neighbours.take_over(&supervisor.kernel.state, &supervisor.workers);
        // Before the first packet.
        supervisor.follow_sets();
        supervisor.ports.name_guards(&supervisor.reload.policy, &supervisor.kernel.state);
        supervisor.ports.attach_all(&supervisor.reload, &supervisor.kernel.state, &supervisor.workers);
        // What could not be opened may be later, where Linux has it not yet, or another port of it works. Where all fail there is
        // nothing to be a gateway of, and another one may have them all.
        if let Some(names) = supervisor.ports.all_failed(&supervisor.reload) {
            let taken = supervisor.ports.guards.is_taken();
            supervisor.stop();
            return Err(StartError::NoPort { names, taken });
        }
        if supervisor.reload.policy.interfaces.is_empty() {
            warn!("the policy has no interface: nothing is forwarded until one with interfaces is applied");
        }
        supervisor.kernel.ensure(&supervisor.reload.policy, &supervisor.reload.effective.policy.wans);
        supervisor.kernel.notes(&supervisor.reload);
        wan::log_changes(&Effective::default(), &supervisor.reload.effective);
        balance::log_changes(&Effective::default(), &supervisor.reload.effective);
        supervisor.check_wans();
        supervisor.check_servers();
        supervisor.reload.begun();
        supervisor.announcements.announce(&supervisor.reload.tables, &supervisor.ports, &supervisor.workers);
        supervisor.follow_port_mappings();
        Ok(supervisor)
    }
}

/// Opens the fast path, unless the policy wants none. Where the kernel refuses it, workers do all the work.
fn fast_path(policy: &Policy) -> Option<Arc<ports::FastPath>> {
    let wanted = policy.gateway.fast_path;
    if wanted == FastPath::Off || policy.mode == Mode::Stateless {
        return None;
    }
    let workers = u32::from(policy.gateway.workers.unwrap_or(1).max(1));
    let flows = policy.limits.flows.saturating_mul(workers);
    match ports::FastPath::open(flows, seed(), ports::MARK) {
        Ok(path) => {
            // Of use once frames go by at XDP, and missed only then.
            if let Err(error) = path.prepare_unsent() {
                debug!("frames that devices refuse cannot be counted: {error}");
            }
            Some(Arc::new(path))
        }
        Err(error) => {
            match wanted {
                FastPath::Tc | FastPath::Xdp => warn!("no fast path, workers forward all packets: {error}"),
                _ => info!("no fast path, workers forward all packets: {error}"),
            }
            None
        }
    }
}
