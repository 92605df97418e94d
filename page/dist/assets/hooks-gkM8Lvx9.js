import{b as t,E as o}from"./ui-CT8jbBbe.js";function e(){return t(o,{title:"hooks"})}export{e as default};
