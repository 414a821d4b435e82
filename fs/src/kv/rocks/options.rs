//! How RocksDB is set up, and why.
//!
//! Sized for a machine with two cores and a few gigabytes: at most [`limits::BLOCK_CACHE_BYTES`] plus
//! the write buffers (about 270 MiB when every table is written hard).

use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, LogLevel, Options, SliceTransform};

use crate::kv::Table;

/// Every number that bounds memory, disk or descriptors.
mod limits {
    pub(super) const MIB: usize = 1 << 20;

    /// Blocks, indexes and filters of all tables together.
    pub(super) const BLOCK_CACHE_BYTES: usize = 256 * MIB;
    /// Write buffers of `data`: it takes all content, so they are large enough that its table files,
    /// which hold keys only, do not get tiny.
    pub(super) const DATA_WRITE_BUFFER_BYTES: usize = 64 * MIB;
    /// One being filled, one being written out, one in reserve so that writers need not wait.
    pub(super) const DATA_WRITE_BUFFERS: i32 = 3;
    /// Write buffers of the tables that grow with the number of blocks and files.
    pub(super) const INDEX_WRITE_BUFFER_BYTES: usize = 8 * MIB;
    /// Write buffers of the tables that have an entry for each layer, branch or checkpoint.
    pub(super) const SMALL_WRITE_BUFFER_BYTES: usize = MIB;
    pub(super) const OTHER_WRITE_BUFFERS: i32 = 2;
    /// The log may hold this much before the tables that keep its oldest part are written out. It bounds
    /// the time to open after a crash. More than the buffers of `data`, which thus decide.
    pub(super) const LOG_BYTES: u64 = 256 * MIB as u64;
    /// Values from here on go to blob files. Smaller ones (tails of files) would cost more in
    /// references than they save in rewriting.
    pub(super) const MIN_BLOB_BYTES: u64 = 512;
    pub(super) const BLOB_FILE_BYTES: u64 = 128 * MIB as u64;
    /// The oldest quarter of the blob files is cleaned by compaction, and any file of it in which
    /// more than half is garbage causes one.
    pub(super) const BLOB_GC_AGE_CUTOFF: f64 = 0.25;
    pub(super) const BLOB_GC_FORCE_THRESHOLD: f64 = 0.5;
    pub(super) const OPEN_FILES: i32 = 512;
    /// One flush and one compaction at a time: the two cores are needed by those who write.
    pub(super) const BACKGROUND_JOBS: i32 = 2;
    /// Written-back distance while files grow, so that a sync finds little left to do.
    pub(super) const BYTES_PER_SYNC: u64 = MIB as u64;
    pub(super) const INFO_LOG_BYTES: usize = 4 * MIB;
    pub(super) const INFO_LOG_FILES: usize = 4;
    /// 1 % false positives.
    pub(super) const FILTER_BITS_PER_KEY: f64 = 10.0;
    /// Part of a write buffer that its own filter may take.
    pub(super) const BUFFER_FILTER_RATIO: f64 = 0.02;
}

/// Returns the options of the whole database.
///
/// What is left at its default on purpose: batches go to the operating system before `write` returns
/// (no manual flushing of the log), which is what [`Durability::Process`](crate::kv::Durability)
/// promises; recovery is to a point in time; closing writes nothing out, as all writes are logged.
pub(super) fn database() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_paranoid_checks(true);
    options.set_max_background_jobs(limits::BACKGROUND_JOBS);
    options.set_max_open_files(limits::OPEN_FILES);
    options.set_max_total_wal_size(limits::LOG_BYTES);
    options.set_bytes_per_sync(limits::BYTES_PER_SYNC);
    options.set_wal_bytes_per_sync(limits::BYTES_PER_SYNC);
    // Reads a few bytes of every table file at opening, for statistics that nobody here needs.
    options.set_skip_stats_update_on_db_open(true);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(limits::INFO_LOG_BYTES);
    options.set_keep_log_file_num(limits::INFO_LOG_FILES);
    // An idle store sleeps.
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

/// Returns the cache that all tables share.
pub(super) fn block_cache() -> Cache {
    Cache::new_lru_cache(limits::BLOCK_CACHE_BYTES)
}

/// Returns the options of one table.
pub(super) fn table(table: Table, cache: &Cache) -> Options {
    let mut options = Options::default();
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    // Indexes and filters count against the cache, so that a large store does not take memory without
    // bound; those of the newest files, which every lookup asks first, stay.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_bloom_filter(limits::FILTER_BITS_PER_KEY, false);
    if table.prefix_bytes() > 0 {
        set_prefix_filters(&mut options, &mut blocks, table.prefix_bytes());
    }
    if table == Table::Data {
        set_up_data(&mut options);
    } else {
        set_up_small_values(&mut options, table);
    }
    options.set_block_based_table_factory(&blocks);
    options
}

/// Lookups in these tables seek among the versions of one thing, so filters know the thing. An exact get
/// is answered by the same filter; a second one over whole keys would double the space.
fn set_prefix_filters(options: &mut Options, blocks: &mut BlockBasedOptions, prefix: usize) {
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(prefix));
    options.set_memtable_prefix_bloom_ratio(limits::BUFFER_FILTER_RATIO);
    blocks.set_whole_key_filtering(false);
}

/// `data` is read by point only, with keys that `map` says exist.
///
/// Values lie in blob files: they are written once by flush and not again by each compaction (write
/// amplification 1.2 instead of 2.5), and a read is one read of the file. They are **not compressed**:
/// runs are written at the speed of the programs in the view and compressing them, at some 500 MB/s a core,
/// would take the core that these programs run on; reads of single blocks would decompress a run; and
/// pages of memory are stored sparsely already (zeros and unchanged pages are not stored).
fn set_up_data(options: &mut Options) {
    options.set_write_buffer_size(limits::DATA_WRITE_BUFFER_BYTES);
    options.set_max_write_buffer_number(limits::DATA_WRITE_BUFFERS);
    options.set_compression_type(DBCompressionType::None);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(limits::MIN_BLOB_BYTES);
    options.set_blob_file_size(limits::BLOB_FILE_BYTES);
    options.set_blob_compression_type(DBCompressionType::None);
    options.set_enable_blob_gc(true);
    options.set_blob_gc_age_cutoff(limits::BLOB_GC_AGE_CUTOFF);
    options.set_blob_gc_force_threshold(limits::BLOB_GC_FORCE_THRESHOLD);
    // The last level has what the levels above have not, so a filter for it would always say yes.
    options.set_optimize_filters_for_hits(true);
    options.set_memtable_prefix_bloom_ratio(limits::BUFFER_FILTER_RATIO);
    options.set_memtable_whole_key_filtering(true);
}

/// The other tables have small values and are read by seek and scan. Their keys repeat each other, so
/// LZ4 makes three out of the cache's one; level 0 is rewritten soon and stays as it is.
fn set_up_small_values(options: &mut Options, table: Table) {
    let buffer = match table {
        Table::Map | Table::Inodes | Table::Dentries | Table::Changes => {
            limits::INDEX_WRITE_BUFFER_BYTES
        }
        Table::Meta
        | Table::Layers
        | Table::Branches
        | Table::Checkpoints
        | Table::Links
        | Table::Xattrs
        | Table::Data
        | Table::Base => limits::SMALL_WRITE_BUFFER_BYTES,
    };
    options.set_write_buffer_size(buffer);
    options.set_max_write_buffer_number(limits::OTHER_WRITE_BUFFERS);
    options.set_compression_per_level(&[DBCompressionType::None, DBCompressionType::Lz4]);
}
