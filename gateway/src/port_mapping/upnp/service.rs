//! Services of the devices, with the actions, arguments and variables that their descriptions list and that requests are held to
//! (Layer3Forwarding:1, WANCommonInterfaceConfig:1, WANIPConnection:1 and 2, of the UPnP Forum).

/// Version of the devices, and of the service by which ports are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Version {
    /// InternetGatewayDevice:1, for which most programs are written.
    One = 1,
    /// InternetGatewayDevice:2.
    Two = 2,
}

/// Service of a device.
#[derive(Debug)]
pub(super) struct Service {
    /// Name in the type of the service.
    pub(super) name: &'static str,
    /// Identifier (`serviceId`).
    pub(super) id: &'static str,
    /// Place of its requests, and of its description with `.xml` behind, below that of the device.
    pub(super) path: &'static str,
    /// Actions.
    pub(super) actions: &'static [Action],
    /// State variables, of which the arguments are.
    pub(super) variables: &'static [Variable],
}

/// Action of a service.
#[derive(Debug)]
pub(super) struct Action {
    /// Name.
    pub(super) name: &'static str,
    /// First version of the service that has the action.
    pub(super) since: Version,
    /// Arguments of a request, each of which it must have.
    pub(super) takes: &'static [Argument],
    /// Arguments of the response, in order.
    pub(super) gives: &'static [Argument],
}

/// Argument of an action.
#[derive(Debug)]
pub(super) struct Argument {
    /// Name.
    pub(super) name: &'static str,
    /// State variable that it is of.
    pub(super) variable: &'static str,
}

/// State variable. None is evented, as nobody may subscribe.
#[derive(Debug)]
pub(super) struct Variable {
    /// Name.
    pub(super) name: &'static str,
    /// Data type.
    pub(super) kind: &'static str,
    /// Values of a string that may be; empty where all may.
    pub(super) allowed: &'static [&'static str],
    /// First version of the service that has the variable.
    pub(super) since: Version,
}

const fn action(name: &'static str, takes: &'static [Argument], gives: &'static [Argument]) -> Action {
    Action { name, since: Version::One, takes, gives }
}

const fn later(name: &'static str, takes: &'static [Argument], gives: &'static [Argument]) -> Action {
    Action { name, since: Version::Two, takes, gives }
}

const fn of(name: &'static str, variable: &'static str) -> Argument {
    Argument { name, variable }
}

const fn variable(name: &'static str, kind: &'static str) -> Variable {
    Variable { name, kind, allowed: &[], since: Version::One }
}

const fn word(name: &'static str, allowed: &'static [&'static str]) -> Variable {
    Variable { name, kind: "string", allowed, since: Version::One }
}

impl Service {
    /// Action of a version of the service.
    pub(super) fn action(&self, name: &str, version: Version) -> Option<&'static Action> {
        self.actions.iter().find(|action| action.name == name && action.since <= version)
    }

    /// Version of the service at a device: those that map no ports have but one.
    pub(super) fn version(&self, device: Version) -> Version {
        if self.name == WAN_IP.name { device } else { Version::One }
    }

    /// Type of the service at a device.
    pub(super) fn kind(&self, device: Version) -> String {
        kind("service", self.name, self.version(device))
    }
}

/// Type of a device or service.
pub(super) fn kind(what: &str, name: &str, version: Version) -> String {
    format!("urn:schemas-upnp-org:{what}:{name}:{}", version as u8)
}

/// The services, of the root device, of the WANDevice and of the WANConnectionDevice.
pub(super) const ALL: [&Service; 3] = [&FORWARDING, &LINK, &WAN_IP];

/// Says which connection is that by which packets leave.
pub(super) static FORWARDING: Service = Service {
    name: "Layer3Forwarding",
    id: "urn:upnp-org:serviceId:L3Forwarding1",
    path: "forwarding",
    actions: &[
        action(
            "SetDefaultConnectionService",
            &[of("NewDefaultConnectionService", "DefaultConnectionService")],
            &[],
        ),
        action(
            "GetDefaultConnectionService",
            &[],
            &[of("NewDefaultConnectionService", "DefaultConnectionService")],
        ),
    ],
    variables: &[variable("DefaultConnectionService", "string")],
};

/// Says what link leads outside.
pub(super) static LINK: Service = Service {
    name: "WANCommonInterfaceConfig",
    id: "urn:upnp-org:serviceId:WANCommonIFC1",
    path: "link",
    actions: &[action(
        "GetCommonLinkProperties",
        &[],
        &[
            of("NewWANAccessType", "WANAccessType"),
            of("NewLayer1UpstreamMaxBitRate", "Layer1UpstreamMaxBitRate"),
            of("NewLayer1DownstreamMaxBitRate", "Layer1DownstreamMaxBitRate"),
            of("NewPhysicalLinkStatus", "PhysicalLinkStatus"),
        ],
    )],
    variables: &[
        word("WANAccessType", &["Ethernet"]),
        variable("Layer1UpstreamMaxBitRate", "ui4"),
        variable("Layer1DownstreamMaxBitRate", "ui4"),
        word("PhysicalLinkStatus", &["Up", "Down"]),
    ],
};

/// State variable of lists of mappings, which are documents.
pub(super) const LISTING: &str = "A_ARG_TYPE_PortListing";

/// Arguments by which a mapping is named.
const NAMED: &[Argument] = &[
    of("NewRemoteHost", "RemoteHost"),
    of("NewExternalPort", "ExternalPort"),
    of("NewProtocol", "PortMappingProtocol"),
];

/// Arguments of a request for a mapping.
const WANTED: &[Argument] = &[
    of("NewRemoteHost", "RemoteHost"),
    of("NewExternalPort", "ExternalPort"),
    of("NewProtocol", "PortMappingProtocol"),
    of("NewInternalPort", "InternalPort"),
    of("NewInternalClient", "InternalClient"),
    of("NewEnabled", "PortMappingEnabled"),
    of("NewPortMappingDescription", "PortMappingDescription"),
    of("NewLeaseDuration", "PortMappingLeaseDuration"),
];

/// Maps ports.
pub(super) static WAN_IP: Service = Service {
    name: "WANIPConnection",
    id: "urn:upnp-org:serviceId:WANIPConn1",
    path: "ip",
    actions: &[
        action("SetConnectionType", &[of("NewConnectionType", "ConnectionType")], &[]),
        action(
            "GetConnectionTypeInfo",
            &[],
            &[
                of("NewConnectionType", "ConnectionType"),
                of("NewPossibleConnectionTypes", "PossibleConnectionTypes"),
            ],
        ),
        action("RequestConnection", &[], &[]),
        action("ForceTermination", &[], &[]),
        action(
            "GetStatusInfo",
            &[],
            &[
                of("NewConnectionStatus", "ConnectionStatus"),
                of("NewLastConnectionError", "LastConnectionError"),
                of("NewUptime", "Uptime"),
            ],
        ),
        action(
            "GetNATRSIPStatus",
            &[],
            &[of("NewRSIPAvailable", "RSIPAvailable"), of("NewNATEnabled", "NATEnabled")],
        ),
        action(
            "GetGenericPortMappingEntry",
            &[of("NewPortMappingIndex", "PortMappingNumberOfEntries")],
            WANTED,
        ),
        action(
            "GetSpecificPortMappingEntry",
            NAMED,
            &[
                of("NewInternalPort", "InternalPort"),
                of("NewInternalClient", "InternalClient"),
                of("NewEnabled", "PortMappingEnabled"),
                of("NewPortMappingDescription", "PortMappingDescription"),
                of("NewLeaseDuration", "PortMappingLeaseDuration"),
            ],
        ),
        action("AddPortMapping", WANTED, &[]),
        later("AddAnyPortMapping", WANTED, &[of("NewReservedPort", "ExternalPort")]),
        action("DeletePortMapping", NAMED, &[]),
        later(
            "DeletePortMappingRange",
            &[
                of("NewStartPort", "ExternalPort"),
                of("NewEndPort", "ExternalPort"),
                of("NewProtocol", "PortMappingProtocol"),
                of("NewManage", "A_ARG_TYPE_Manage"),
            ],
            &[],
        ),
        action("GetExternalIPAddress", &[], &[of("NewExternalIPAddress", "ExternalIPAddress")]),
        later(
            "GetListOfPortMappings",
            &[
                of("NewStartPort", "ExternalPort"),
                of("NewEndPort", "ExternalPort"),
                of("NewProtocol", "PortMappingProtocol"),
                of("NewManage", "A_ARG_TYPE_Manage"),
                of("NewNumberOfPorts", "PortMappingNumberOfEntries"),
            ],
            &[of("NewPortListing", LISTING)],
        ),
    ],
    variables: &[
        word("ConnectionType", &["IP_Routed"]),
        variable("PossibleConnectionTypes", "string"),
        word("ConnectionStatus", &["Connected", "Disconnected"]),
        variable("Uptime", "ui4"),
        word("LastConnectionError", &["ERROR_NONE"]),
        variable("RSIPAvailable", "boolean"),
        variable("NATEnabled", "boolean"),
        variable("ExternalIPAddress", "string"),
        variable("PortMappingNumberOfEntries", "ui2"),
        variable("PortMappingEnabled", "boolean"),
        variable("PortMappingLeaseDuration", "ui4"),
        variable("RemoteHost", "string"),
        variable("ExternalPort", "ui2"),
        variable("InternalPort", "ui2"),
        word("PortMappingProtocol", &["TCP", "UDP"]),
        variable("InternalClient", "string"),
        variable("PortMappingDescription", "string"),
        Variable { name: "A_ARG_TYPE_Manage", kind: "boolean", allowed: &[], since: Version::Two },
        Variable { name: LISTING, kind: "string", allowed: &[], since: Version::Two },
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_is_of_a_variable_of_its_version() {
        for service in ALL {
            for action in service.actions {
                for argument in action.takes.iter().chain(action.gives) {
                    let found = service.variables.iter().find(|own| own.name == argument.variable);
                    let found = found.unwrap_or_else(|| panic!("{} {}", action.name, argument.name));
                    assert!(found.since <= action.since, "{} {}", action.name, argument.name);
                }
            }
            for variable in service.variables {
                let is_used = service.actions.iter().any(|action| {
                    action.takes.iter().chain(action.gives).any(|own| own.variable == variable.name)
                });
                assert!(is_used, "{}", variable.name);
            }
        }
    }
}
