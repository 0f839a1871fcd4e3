//! What hosts are told of failed checks ([`crate::panics`]), also of those of other shards, which go on alone.

use crate::owners::Owners;
use crate::panics::PanicRecord;
use crate::peer::{Message, ShardMessage};
use crate::registry::qualified;
use crate::seat::ShardIndex;
use diecut_media::Divide;
use diecut_nvmf::PanicsTold;
use diecut_units::mutant;
use std::sync::Arc;

/// Tells the target of panics. Of one that happened at work for a vSSD of the subsystem its hosts read what failed, and where; what the
/// shard did before is of other tenants, too, and administrators alone read that.
pub(crate) fn tell<M: Divide>(here: &mut Owners<M>, nqn: &str) {
    let panics = &here.config.panics;
    let (Some(last), Some(record)) = (panics.last(), here.registry.state.subsystems.get(nqn)) else { return };
    let state = &here.registry.state;
    let vssd_of = |volume| Some(state.vssds.get(&state.volumes.get(volume)?.vssd)?.number);
    let own: Vec<u32> = record.namespaces.iter().filter_map(|one| vssd_of(&one.volume)).collect();
    let concerns = |panic: &&PanicRecord| panic.vssd.is_some_and(|vssd| own.contains(&vssd));
    let text = panics.iter().rev().find(concerns).map(|panic| {
        let (commands, notices) = (Vec::new(), Vec::new());
        PanicRecord { commands, notices, ..panic.clone() }.describe().into_bytes()
    });
    let mut ids = [0; 4];
    ids.iter_mut().zip(panics.iter().rev()).for_each(|(id, panic)| *id = panic.id());
    let told = PanicsTold { count: last.number, ids, record: text.unwrap_or_default() };
    here.plane.nvme.target.set_panics(&qualified(nqn), told, &mut here.plane.nvme.actions);
}

/// Something failed on another shard. Hosts are told, and the first shard tells the others. What is known already may be newer.
pub(crate) fn hear<M: Divide>(here: &mut Owners<M>, panics: Arc<[PanicRecord]>) {
    let newest = |panics: &[PanicRecord]| panics.last().map_or(0, |last| last.number);
    let is_news = newest(&panics) > newest(&here.config.panics);
    if !is_news || mutant!("shard: hosts do not read of panics of other shards") {
        return;
    }
    here.config.panics = Arc::clone(&panics);
    let nqns: Vec<String> = here.registry.state.subsystems.keys().cloned().collect();
    nqns.iter().for_each(|nqn| tell(here, nqn));
    if !here.placement.is_member() {
        let tell = |member| (ShardIndex(member), ShardMessage(Message::Panicked(Arc::clone(&panics))));
        here.placement.outgoing.extend((1..here.placement.shards).map(tell));
    }
}
