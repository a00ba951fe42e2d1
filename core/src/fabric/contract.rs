//! What every fabric must do, as tests that any of them can run: [`ALL`] over a [`Harness`].
//!
//! A test panics where the fabric breaks the contract. The simulation runs them as unit tests; fabrics that need a device run
//! them where there is one (cargo feature `contract`).
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod connections;
mod datagrams;
mod pair;
mod transfers;

use core::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use super::{Fabric, datagram::Queue};

/// Two fabrics that reach each other (they may be one), and the passing of time.
pub trait Harness {
    /// The fabric that connects.
    fn client(&self) -> &dyn Fabric;

    /// The fabric that listens.
    fn server(&self) -> &dyn Fabric;

    /// An address of the server that the client has a route to, with port 0.
    fn server_addr(&self) -> SocketAddr;

    /// An address that nobody has a route to, where there is one.
    fn unrouted_addr(&self) -> Option<SocketAddr>;

    /// Lets some time pass (an event of the simulation, a few milliseconds). False: nothing will happen any more, or a test has
    /// waited for too long (some seconds).
    fn turn(&mut self) -> bool;

    /// Whether a descriptor is readable.
    fn is_readable(&self, fd: RawFd) -> bool;
}

/// A contract test.
pub type Test = fn(&mut dyn Harness);

/// All tests with their names. Each wants fabrics of its own: the tokens are the same in every test.
pub const ALL: &[(&str, Test)] = &[
    ("private_data_travels_both_ways", connections::private_data_travels_both_ways),
    ("limits_and_areas_are_as_asked", connections::limits_and_areas_are_as_asked),
    ("addresses_agree", connections::addresses_agree),
    ("reject_is_refused", connections::reject_is_refused),
    ("dropped_request_is_refused", connections::dropped_request_is_refused),
    ("nobody_listens_is_refused", connections::nobody_listens_is_refused),
    ("no_route_is_reported", connections::no_route_is_reported),
    ("listening_ends_with_its_handle", connections::listening_ends_with_its_handle),
    ("cancelled_connect_is_silent", connections::cancelled_connect_is_silent),
    ("two_connections_keep_apart", connections::two_connections_keep_apart),
    ("disconnect_comes_after_messages", connections::disconnect_comes_after_messages),
    ("both_may_disconnect", connections::both_may_disconnect),
    ("drop_kills", connections::drop_kills),
    ("broken_connection_disconnects", connections::broken_connection_disconnects),
    ("message_comes_after_its_bytes", transfers::message_comes_after_its_bytes),
    ("messages_keep_their_order", transfers::messages_keep_their_order),
    ("both_directions_at_once", transfers::both_directions_at_once),
    ("plain_writes_are_silent", transfers::plain_writes_are_silent),
    ("empty_write_needs_no_address", transfers::empty_write_needs_no_address),
    ("targets_are_written", transfers::targets_are_written),
    ("sent_covers_lower_ids", transfers::sent_covers_lower_ids),
    ("inline_bytes_are_free_at_once", transfers::inline_bytes_are_free_at_once),
    ("completions_fill_what_is_given", transfers::completions_fill_what_is_given),
    ("late_receives_only_delay", transfers::late_receives_only_delay),
    ("queues_can_be_filled_again_and_again", transfers::queues_can_be_filled_again_and_again),
    ("wrong_key_is_refused", transfers::wrong_key_is_refused),
    ("outside_access_is_refused", transfers::outside_access_is_refused),
    ("armed_queue_is_announced_once", transfers::armed_queue_is_announced_once),
];

/// Makes queues for datagrams, which reach each other, and passes time.
pub trait DatagramHarness {
    /// A new queue of an address that has a path to itself.
    fn queue(&mut self) -> Box<dyn Queue>;

    /// An address that no path leads to.
    fn unreachable(&self) -> IpAddr;

    /// See [`Harness::turn`].
    fn turn(&mut self) -> bool;

    /// Whether a descriptor is readable.
    fn is_readable(&self, fd: RawFd) -> bool;
}

/// A contract test of datagrams.
pub type DatagramTest = fn(&mut dyn DatagramHarness);

/// All of them.
pub const DATAGRAMS: &[(&str, DatagramTest)] = &[
    ("a_message_arrives_as_it_was_sent", datagrams::a_message_arrives_as_it_was_sent),
    ("queues_have_numbers_of_their_own", datagrams::queues_have_numbers_of_their_own),
    ("a_queue_reaches_itself", datagrams::a_queue_reaches_itself),
    ("messages_of_every_length", datagrams::messages_of_every_length),
    ("what_is_given_may_be_changed", datagrams::what_is_given_may_be_changed),
    ("a_full_queue_drops_and_goes_on", datagrams::a_full_queue_drops_and_goes_on),
    ("a_flood_is_dropped_and_the_rest_comes", datagrams::a_flood_is_dropped_and_the_rest_comes),
    ("no_path_is_reported", datagrams::no_path_is_reported),
    ("many_searches_end", datagrams::many_searches_end),
    ("a_path_that_is_released_is_gone", datagrams::a_path_that_is_released_is_gone),
    ("a_search_may_outlive_its_queue", datagrams::a_search_may_outlive_its_queue),
    ("an_armed_queue_is_announced", datagrams::an_armed_queue_is_announced),
];
