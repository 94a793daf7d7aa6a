"""What an administrator adds to Slurm so that Fairlead can steer a partition: text alone, nothing is changed here.

Jobs of the partition wait on hold until Fairlead releases them; `holds` explains how Fairlead knows its holds from others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairlead.engines.slurm.holds import OWN_HOLD

_LUA = """\
-- Written by `fairlead slurm setup`. Jobs of partition @PARTITION@ wait on hold until Fairlead starts them.
-- Only root and the users below release them, choose their nodes or set their priority.

local STEERED = "@PARTITION@"
local STEERS = {[0] = true@UIDS@}
local OWN_HOLD = "@OWN_HOLD@"  -- in the comment of a job that its owner holds
local NODES = "Fairlead chooses the nodes of jobs in partition " .. STEERED .. "; use --constraint, or another partition."

local function steered(partition, part_list)
   if partition == nil or partition == "" then
      local mine = part_list[STEERED]
      return mine ~= nil and mine.flag_default == 1
   end
   return partition == STEERED
end

local function among_others(partition)
   return partition ~= nil and partition ~= STEERED and ("," .. partition .. ","):find("," .. STEERED .. ",", 1, true)
end

local function given(number)
   return number ~= nil and number ~= slurm.NO_VAL
end

local function owner_holds(comment)
   return (comment or ""):find(OWN_HOLD, 1, true) ~= nil
end

local function with_own_hold(comment)
   if comment == nil or comment == "" then return OWN_HOLD end
   return owner_holds(comment) and comment or comment .. " " .. OWN_HOLD
end

local function without_own_hold(comment)
   local from, to = comment:find(" ?" .. OWN_HOLD:gsub("%-", "%%-"))
   local rest = comment:sub(1, from - 1) .. comment:sub(to + 1)
   return rest == "" and "released" or rest  -- Slurm keeps the old comment if the new one is empty
end

local function refuse(sentence)
   slurm.log_user("%s", sentence)
   return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR  -- some versions show no sentence when a job is changed
end

function slurm_job_submit(job, part_list, uid)
   if among_others(job.partition) then
      return refuse("Fairlead steers partition " .. STEERED .. "; name it alone, or leave it out of the list.")
   end
   if not steered(job.partition, part_list) then return slurm.SUCCESS end
   if job.script == nil or job.script == "" then
      return refuse("Partition " .. STEERED .. " takes batch jobs only; use sbatch, or another partition.")
   end
   if job.requeue == 0 then
      return refuse("Jobs of partition " .. STEERED .. " may be stopped and started again; "
                    .. "submit without --no-requeue, or to another partition.")
   end
   if job.req_nodes ~= nil then return refuse(NODES) end
   job.requeue = 1
   if job.priority == 0 then
      job.comment = with_own_hold(job.comment)
   elseif not STEERS[uid] or not given(job.priority) then
      job.priority = 0
   end
   return slurm.SUCCESS
end

local function moved(job, record)
   if STEERED == job.partition then
      job.priority = 0
   elseif record.priority == 0 and not given(job.priority) and not owner_holds(record.comment) then
      job.priority = slurm.INFINITE  -- its hold was Fairlead's
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, part_list, uid)
   if STEERS[uid] then return slurm.SUCCESS end
   if among_others(job.partition) then
      return refuse("Fairlead steers partition " .. STEERED .. "; name it alone, or leave it out of the list.")
   end
   if job.partition ~= nil and (job.partition == STEERED) ~= (record.partition == STEERED) then
      return moved(job, record)
   end
   if record.partition ~= STEERED then return slurm.SUCCESS end
   if job.req_nodes ~= nil then return refuse(NODES) end
   if job.requeue == 0 then
      return refuse("Jobs of partition " .. STEERED .. " may be stopped and started again.")
   end
   if given(job.nice) and record.priority == 0 then
      return refuse("The nice value of a held job cannot be changed: Slurm would release it.")
   end
   if not given(job.priority) then return slurm.SUCCESS end
   if job.priority == 0 then
      job.comment = with_own_hold(job.comment or record.comment)
      return slurm.SUCCESS
   end
   if owner_holds(record.comment) then
      job.priority = 0  -- from now on it waits for Fairlead alone
      job.comment = without_own_hold(record.comment)
      return slurm.SUCCESS
   end
   return refuse("Fairlead starts the jobs of partition " .. STEERED .. " when their turn comes; it cannot be forced.")
end
"""


def job_submit_lua(partition: str, uids: Sequence[int]) -> str:
    """The plug-in that holds jobs of the partition, and lets only root and these users release them."""
    users = "".join(f", [{uid}] = true" for uid in uids if uid)
    return _LUA.replace("@PARTITION@", partition).replace("@UIDS@", users).replace("@OWN_HOLD@", OWN_HOLD)


def uids_of(script: str) -> list[int]:
    """The users besides root that a plug-in of ours lets release jobs; none if it is not ours."""
    line = re.search(r"^local STEERS = \{(.*)\}", script, re.MULTILINE)
    return [int(uid) for uid in re.findall(r"\[(\d+)\]", line[1]) if int(uid)] if line else []
