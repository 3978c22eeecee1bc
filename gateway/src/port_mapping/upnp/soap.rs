//! Requests of SOAP (UPnP Device Architecture 1.1, section 3.1): an action of a service, with its arguments, and the faults of those that
//! cannot be carried out.
//!
//! A document type is refused, and so is a document of more nodes than a request can have.

use roxmltree::{Document, Node, ParsingOptions};

use super::service::{Action, Service, Version, kind};

/// Namespace of envelopes.
pub(super) const ENVELOPE: &str = "http://schemas.xmlsoap.org/soap/envelope/";

/// Encoding of envelopes.
pub(super) const ENCODING: &str = "http://schemas.xmlsoap.org/soap/encoding/";

/// Nodes of a request, at most: elements, attributes, texts and comments.
const MOST_NODES: u32 = 256;

/// Request of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Type of the service as the host names it.
    pub(super) service: String,
    /// Version that the host names.
    pub(super) version: Version,
    /// Name of the action.
    pub(super) action: String,
    arguments: Vec<(String, String)>,
}

/// Text that is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// Text that is no XML, has a document type, or has too many nodes.
    #[error("the request is no XML, has a document type, or is too large")]
    Xml,
    /// Other content than one action in the body of an envelope.
    #[error("the request is no envelope of SOAP with one action")]
    Envelope,
    /// Header SOAPACTION of another action or service.
    #[error("SOAPACTION names another action or service")]
    Header,
}

/// Reason why an action is not carried out (UPnP Device Architecture 1.1, table 3-3; WANIPConnection:2, section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// No such action.
    #[error("Invalid Action")]
    Action,
    /// An argument is missing, or has another form.
    #[error("Invalid Args")]
    Arguments,
    /// Failure.
    #[error("Action Failed")]
    Failed,
    /// Number that is too large.
    #[error("Argument Value Out of Range")]
    Range,
    /// Request for another host, or of one that may not ask.
    #[error("Action not authorized")]
    NotAuthorized,
    /// Place behind the last.
    #[error("SpecifiedArrayIndexInvalid")]
    Index,
    /// No such mapping.
    #[error("NoSuchEntryInArray")]
    NoEntry,
    /// Any outside port, where one is to be named.
    #[error("WildCardNotPermittedInExtPort")]
    AnyExternalPort,
    /// Another mapping, a connection, a forward or the policy has the port.
    #[error("ConflictInMappingEntry")]
    Conflict,
    /// Remote host, where all may reach the port.
    #[error("RemoteHostOnlySupportsWildcard")]
    RemoteHost,
    /// No port, or no room, for another mapping.
    #[error("NoPortMapsAvailable")]
    Full,
    /// Mapping of a program that asks by PCP or NAT-PMP, or of an operator.
    #[error("ConflictWithOtherMechanisms")]
    OtherMechanism,
    /// No mapping in the range.
    #[error("PortMappingNotFound")]
    NoneInRange,
    /// Setting that nobody changes.
    #[error("ReadOnly")]
    ReadOnly,
    /// Any inside port, where one is to be named.
    #[error("WildCardNotPermittedInIntPort")]
    AnyInternalPort,
    /// Range that ends before it begins.
    #[error("InconsistentParameters")]
    Inconsistent,
}

impl Fault {
    /// Error code.
    pub(super) fn code(self) -> u16 {
        match self {
            Fault::Action => 401,
            Fault::Arguments => 402,
            Fault::Failed => 501,
            Fault::Range => 601,
            Fault::NotAuthorized => 606,
            Fault::Index => 713,
            Fault::NoEntry => 714,
            Fault::AnyExternalPort => 716,
            Fault::Conflict => 718,
            Fault::RemoteHost => 726,
            Fault::Full => 728,
            Fault::OtherMechanism => 729,
            Fault::NoneInRange => 730,
            Fault::ReadOnly => 731,
            Fault::AnyInternalPort => 732,
            Fault::Inconsistent => 733,
        }
    }

    /// The fault by a version's codes: the first has none above 726, and its programs take a conflict for a reason to ask for another port.
    pub(super) fn of(self, version: Version) -> Fault {
        match (version, self) {
            (Version::Two, fault) => fault,
            (Version::One, Fault::OtherMechanism) => Fault::Conflict,
            (Version::One, Fault::Full | Fault::ReadOnly) => Fault::Failed,
            (Version::One, Fault::AnyInternalPort) => Fault::Arguments,
            (Version::One, fault) => fault,
        }
    }
}

impl Call {
    /// Parses a request to a service of a device; `header` is its SOAPACTION.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(super) fn parse(
        text: &str,
        header: &str,
        service: &Service,
        device: Version,
    ) -> Result<Call, Malformed> {
        let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|_| Malformed::Xml)?;
        let root = document.root_element();
        if !root.has_tag_name((ENVELOPE, "Envelope")) {
            return Err(Malformed::Envelope);
        }
        let only = |found: &mut dyn Iterator<Item = Node<'_, '_>>| found.next().is_none();
        let mut bodies = root.children().filter(|node| node.has_tag_name((ENVELOPE, "Body")));
        let body = bodies.next().filter(|_| only(&mut bodies)).ok_or(Malformed::Envelope)?;
        let mut actions = body.children().filter(Node::is_element);
        let asked = actions.next().filter(|_| only(&mut actions)).ok_or(Malformed::Envelope)?;
        let (Some(named), action) = (asked.tag_name().namespace(), asked.tag_name().name()) else {
            return Err(Malformed::Envelope);
        };
        if header.trim().trim_matches('"') != format!("{named}#{action}") {
            return Err(Malformed::Header);
        }
        let versions = [Version::One, Version::Two];
        let mut known = versions.into_iter().filter(|version| *version <= service.version(device));
        let version = known.find(|version| named == kind("service", service.name, *version));
        let version = version.ok_or(Malformed::Header)?;
        let arguments = asked.children().filter(Node::is_element).map(|argument| {
            let text: String =
                argument.children().filter(Node::is_text).filter_map(|node| node.text()).collect();
            (argument.tag_name().name().to_owned(), text.trim().to_owned())
        });
        let arguments = arguments.collect();
        Ok(Call { service: named.to_owned(), version, action: action.to_owned(), arguments })
    }

    /// Refuses a request that lacks an argument of the action, or has one twice.
    ///
    /// # Errors
    /// [`Fault::Arguments`].
    pub(super) fn check(&self, action: &Action) -> Result<(), Fault> {
        let is_there_once = |name: &str| self.arguments.iter().filter(|(own, _)| own == name).count() == 1;
        match action.takes.iter().all(|argument| is_there_once(argument.name)) {
            true => Ok(()),
            false => Err(Fault::Arguments),
        }
    }

    /// Value of an argument; empty where there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.arguments.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    /// Number of an argument.
    ///
    /// # Errors
    /// [`Fault::Arguments`] for what is no number, [`Fault::Range`] for one that is too large.
    pub(super) fn number<N: TryFrom<u64>>(&self, name: &str) -> Result<N, Fault> {
        let digits = self.text(name);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Fault::Arguments);
        }
        let number: u64 = digits.parse().map_err(|_| Fault::Range)?;
        N::try_from(number).map_err(|_| Fault::Range)
    }

    /// Choice of an argument of type boolean.
    ///
    /// # Errors
    /// [`Fault::Arguments`].
    pub(super) fn choice(&self, name: &str) -> Result<Choice, Fault> {
        match self.text(name) {
            "1" | "true" | "yes" => Ok(Choice::Yes),
            "0" | "false" | "no" => Ok(Choice::No),
            _ => Err(Fault::Arguments),
        }
    }
}

/// Value of type boolean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// True.
    Yes,
    /// False.
    No,
}

#[cfg(test)]
mod tests;
