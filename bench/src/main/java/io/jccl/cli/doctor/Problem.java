package io.jccl.cli.doctor;

/**
 * A problem of the machine.
 *
 * @param severity how much it matters
 * @param id a stable name
 * @param found what was found, with the value
 * @param action what to do
 */
record Problem(Severity severity, String id, String found, String action) {}
