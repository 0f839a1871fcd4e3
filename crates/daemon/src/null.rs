//! A server without a device: null namespaces, for measuring what the network path costs.

use crate::error::ServeError;
use crate::resources;
use crate::shards::check_shards;
use diecut_reactor::{Reactor, ReactorConfig};
use diecut_shard::drive::ShardIndex;
use diecut_shard::null::{NullReads, NullShard};
use diecut_shard::{Seat, ShardConfig};

/// Blocks of 4096 bytes of a null namespace: 1 TiB.
const SIZE_LBAS: u64 = 1 << 28;

/// Serves one null namespace per NQN, on shards in turn, until SIGINT, SIGTERM or SIGHUP. `announce` is called once, with lines for people, when
/// hosts can connect.
///
/// # Errors
/// Names the NQN or the address and what to do.
pub fn serve_null(
    listen: &[String],
    nqns: &[String],
    shards: u16,
    announce: impl FnOnce(&str),
) -> Result<(), ServeError> {
    check_shards(shards, &[(u16::MAX, 0)])?;
    let listen = crate::addresses::resolve("--listen", listen)?;
    for nqn in nqns {
        if !diecut_shard::null::is_name(nqn) {
            let message = format!("\"{nqn}\" is no NQN: printable ASCII without spaces, 1 to 223 bytes");
            return Err(ServeError::Setup(message));
        }
        if diecut_shard::null::is_discovery(nqn) {
            let message = format!(
                "{nqn} is the name of discovery, which every server answers itself, so no host would reach the namespace; choose \
                 another name"
            );
            return Err(ServeError::Setup(message));
        }
    }
    // Signals are blocked in the shard's thread only if they are caught before it starts.
    let mut signals = crate::signals::stops()?;
    let mut config = ShardConfig::default().target;
    config.advertised.clone_from(&listen);
    let names: Vec<String> = nqns.to_vec();
    let make = (0..shards).map(|index| {
        let (config, names) = (config.clone(), names.clone());
        let seat = Seat { index: ShardIndex(index), shards };
        move |_now| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            NullShard::seated(config, &names, SIZE_LBAS, NullReads::SharedZeros, seat)
        }
    });
    let newcomers = config.newcomers_max() * usize::from(shards);
    let (limit, open) = (resources::raise_descriptors(), resources::open_descriptors());
    let connections = resources::connection_limits(limit, open, newcomers);
    let reactor_config = ReactorConfig { listen, connections, ..ReactorConfig::default() };
    let reactor = Reactor::start(&reactor_config, make.collect())?;
    let listen = crate::addresses::dialled(reactor.addresses());
    let listen = &listen[0];
    let mut text = format!("listening  {listen}, NVMe over TCP, null namespaces: nothing is stored\n");
    for nqn in nqns {
        text += &format!("    diecut bench {listen} --nqn {nqn}\n");
    }
    announce(&text);
    tracing::info!(address = %listen, namespaces = nqns.len(), "listening, NVMe over TCP, null namespaces");
    signals.forever().next();
    tracing::info!("stopping");
    reactor.stop();
    Ok(())
}
