package io.jccl.cli.doctor;

/**
 * Something that is not as it should be.
 *
 * @param severity how much it matters
 * @param id a stable name
 * @param found what was found, with the value
 * @param action what to do
 */
record Problem(Severity severity, String id, String found, String action) {}
