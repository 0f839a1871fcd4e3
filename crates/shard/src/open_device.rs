//! What a shard makes of a device that it is given: the pool over it, and the catalog there.

use crate::catalog::new_catalog;
use crate::config::DeviceConfig;
use crate::devices::OwnDevice;
use crate::registry::Registry;
use crate::seat::Seat;
use crate::staging::Staging;
use diecut_catalog::Catalog;
use diecut_media::Divide;
use diecut_units::{ProtectedMemory, Time};
use diecut_vssd::Pool;

/// The pool over a part of a device: of the first shard a new one or what the device holds, of others an empty one. What cannot be is
/// said, and stands beside a pool that nobody uses.
fn open_pool<M: Divide>(
    media: &mut M,
    config: &DeviceConfig,
    (protected, slot_size_bytes): (Option<&ProtectedMemory>, usize),
    seat: Seat,
    now: Time,
) -> (Pool, Option<String>) {
    let new = |media: &M| Pool::create(media, config.pool.clone());
    let block_states_size_bytes = Pool::block_states_size_bytes(media.geometry(), &config.pool);
    match protected {
        _ if seat.index.0 > 0 => (Pool::empty_part(media, config.pool.clone()), None),
        None if seat.shards > 1 && !new(media).can_divide() => {
            let failure = format!(
                "without protected memory one shard keeps all block states, but {} were asked for; start the server with \
                 one shard, or give the device protected memory",
                seat.shards
            );
            (new(media), Some(failure))
        }
        None if config.makes_pool => match Pool::make_on_flash(media, config.pool.clone()) {
            Ok(mut pool) => {
                if seat.shards > 1 {
                    pool.will_divide();
                }
                pool.make_durable(media, now);
                (pool, None)
            }
            Err(error) => (new(media), Some(error.to_string())),
        },
        None => {
            let mut pool = Pool::open_from_flash(media, config.pool.clone(), now);
            if seat.shards > 1 {
                pool.will_divide();
            }
            (pool, None)
        }
        Some(memory) if memory.size_bytes() < block_states_size_bytes + slot_size_bytes => {
            let failure = format!(
                "the device has {} bytes of protected memory, but block states need {block_states_size_bytes} and each \
                 vSSD {}; give the device more, or none",
                memory.size_bytes(),
                slot_size_bytes
            );
            (new(media), Some(failure))
        }
        Some(memory) => {
            let journal = memory.region(0..block_states_size_bytes);
            match Pool::open(media, config.pool.clone(), journal) {
                Ok(pool) => (pool, None),
                Err(error) => (new(media), Some(error.to_string())),
            }
        }
    }
}

/// What a shard has of one device: the pool, and the catalog there. What cannot be is said.
pub(crate) fn open_device<M: Divide>(
    mut media: M,
    config: DeviceConfig,
    slot_size_bytes: usize,
    seat: Seat,
    now: Time,
) -> (OwnDevice<M>, Catalog, Option<String>) {
    let geometry = *media.geometry();
    let memory = media.protected_memory();
    let (mut pool, mut failure) =
        open_pool(&mut media, &config, (memory.as_ref(), slot_size_bytes), seat, now);
    if seat.shards > 1 {
        pool.follow();
    }
    let dies: Vec<_> =
        (0..geometry.dies()).map(|die| pool.system_area().catalog_blocks(die).to_vec()).collect();
    let device = config.pool.nonces.map_or([0; 16], |nonces| nonces.device());
    let is_new = seat.index.0 > 0 || config.makes_pool;
    let catalog = new_catalog(&mut media, device, &dies, is_new, now);
    if catalog.is_none() {
        let message = "the device has no two dies with good erase blocks for the catalog; use a larger one";
        failure = Some(message.to_owned());
    }
    let catalog = catalog.unwrap_or_else(|| Registry::no_catalog(&media));
    let block_states_size_bytes = Pool::block_states_size_bytes(&geometry, &config.pool);
    let staging = Staging { memory, block_states_size_bytes, slot_size_bytes };
    (OwnDevice::new(media, pool, config, staging), catalog, failure)
}
